// Command noop does nothing: the floor of what starting a program costs.
package main

func main() {}
