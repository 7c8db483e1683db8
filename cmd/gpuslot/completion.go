package main

import "github.com/spf13/cobra"

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script for a shell",
		Long: `completion prints the script that completes gpuslot's commands and flags in a shell.
The packages install all three scripts.`,
		Example: `  source <(gpuslot completion bash)
  gpuslot completion fish > ~/.config/fish/completions/gpuslot.fish`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(c.OutOrStdout(), true)
			case "zsh":
				return c.Root().GenZshCompletion(c.OutOrStdout())
			}
			return c.Root().GenFishCompletion(c.OutOrStdout(), true)
		},
	}
}
