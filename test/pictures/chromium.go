package pictures

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// answerLimit bounds one answer of the browser.
const answerLimit = 5 * time.Minute

// Browser is a Chromium, told what to do through a pipe in the words of the
// DevTools protocol.
type Browser struct {
	tb      testing.TB
	in      *os.File
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	events  []message
	ended   chan struct{}
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Session string `json:"sessionId,omitempty"`
}

// NewBrowser starts one with an empty page; it ends with the test.
func NewBrowser(tb testing.TB) *Browser {
	tb.Helper()
	program := filepath.Join(Fetch(tb, "chromium"), "chromium")
	home := tb.TempDir()
	// The sandbox needs user namespaces, which a container may not have; the
	// browser sees our own page only.
	cmd := exec.Command(program, "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars", "--user-data-dir="+home+"/data", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+home)
	theirs, in := pipe(tb)
	out, theirsOut := pipe(tb)
	cmd.ExtraFiles = []*os.File{theirs, theirsOut} // 3 and 4
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	theirs.Close()
	theirsOut.Close()
	b := &Browser{tb: tb, in: in, waiting: map[int]chan message{}, ended: make(chan struct{})}
	go b.listen(out)
	tb.Cleanup(func() {
		in.Close() // it ends with its pipe
		select {
		case <-b.ended:
		case <-time.After(answerLimit):
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
	})
	var target struct {
		ID string `json:"targetId"`
	}
	b.Do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var s struct {
		ID string `json:"sessionId"`
	}
	b.Do("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &s)
	b.session = s.ID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.Do(domain+".enable", nil, nil)
	}
	return b
}

func pipe(tb testing.TB) (r, w *os.File) {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	return r, w
}

// listen sorts what the browser says: replies to who waits, events to the rest.
func (b *Browser) listen(out *os.File) {
	defer close(b.ended)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[m.ID]; m.ID != 0 && c != nil {
			delete(b.waiting, m.ID)
			c <- m
		} else {
			b.events = append(b.events, m)
		}
		b.mu.Unlock()
	}
}

// Do calls a method and reads its result.
func (b *Browser) Do(method string, params map[string]any, result any) {
	b.tb.Helper()
	text, err := json.Marshal(params)
	if err != nil || params == nil {
		text = []byte("{}")
	}
	reply := make(chan message, 1)
	b.mu.Lock()
	b.next++
	m := message{ID: b.next, Method: method, Params: text, Session: b.session}
	b.waiting[m.ID] = reply
	b.mu.Unlock()
	line, err := json.Marshal(m)
	if err == nil {
		_, err = b.in.Write(append(line, 0))
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	select {
	case m = <-reply:
	case <-b.ended:
		b.tb.Fatalf("%s: Chromium has ended", method)
	case <-time.After(answerLimit):
		b.tb.Fatalf("%s: Chromium does not answer", method)
	}
	if m.Error != nil {
		b.tb.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			b.tb.Fatalf("%s: %v", method, err)
		}
	}
}

// Events are the parameters of all events of one method so far.
func (b *Browser) Events(method string) []json.RawMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []json.RawMessage
	for _, e := range b.events {
		if e.Method == method {
			out = append(out, e.Params)
		}
	}
	return out
}

// Open shows an address in a window of this size, in light or dark, and waits
// until it is there.
func (b *Browser) Open(url string, width, height int, scheme string) {
	b.tb.Helper()
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.Do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	loads := len(b.Events("Page.loadEventFired"))
	b.Do("Page.navigate", map[string]any{"url": url}, nil)
	for end := time.Now().Add(answerLimit); len(b.Events("Page.loadEventFired")) == loads; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.tb.Fatalf("%s does not load", url)
		}
	}
}

// Eval is the value of a JavaScript expression; promises are awaited.
func (b *Browser) Eval(expression string, value any) {
	b.tb.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	b.Do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		b.tb.Fatalf("%s: %s: %s", expression, r.Exception.Text, r.Result.Value)
	}
	if value != nil {
		if err := json.Unmarshal(r.Result.Value, value); err != nil {
			b.tb.Fatalf("%s: %v in %s", expression, err, r.Result.Value)
		}
	}
}

// Key presses a key, such as "Tab".
func (b *Browser) Key(key string, code int) {
	b.tb.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		b.Do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
	}
}

// Screenshot is the whole page as PNG.
func (b *Browser) Screenshot() []byte {
	b.tb.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	b.Do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.tb.Fatal(fmt.Errorf("screenshot: %w", err))
	}
	return png
}
