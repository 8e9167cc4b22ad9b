package cli

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// eraseLine goes to the beginning of a terminal's line and empties it.
const eraseLine = "\r\x1b[K"

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalSize returns columns and rows of a terminal, 0 when it does not say.
func terminalSize(stream any) (width, height int) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// oneLine returns text with its line breaks as spaces.
func oneLine(text string) string {
	return strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(text)
}

// ending returns the end of a text that is longer than so many characters, with
// a mark before it.
func ending(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most || most < 1 {
		return text
	}
	return "…" + string(runes[len(runes)-most+1:])
}
