package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
)

func newDLQShow(s streams) *cobra.Command {
	o := &letterOptions{}
	input := false
	cmd := &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show a dead letter",
		Long: `show prints what a dead letter recorded: the request's headers, the terminal frame
that the client got and the tokens that were decoded before. The input is shown
only with --input: it may be somebody's secret. With --json the payload comes along
with it, as it was published, in base64.`,
		Example: `  cellmq dlq show 7
  cellmq dlq show 7 --input
  cellmq dlq show 7 --input --json | jq -r .payload | base64 -d`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			number, err := letterNumber(positional[0])
			if err != nil {
				return err
			}
			cfg, err := environment()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			l, err := o.one(ctx, cfg, s, number)
			if err != nil {
				return err
			}
			d := detailsOf(l, input)
			if input {
				d.readInput(l)
			}
			if o.json {
				return writeJSON(s.out, d)
			}
			return d.write(s.out)
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().BoolVar(&input, "input", false, "show the input as well")
	return cmd
}

// letterSummary is what list shows of a letter.
type letterSummary struct {
	Number    uint64      `json:"number"`
	Sequence  uint64      `json:"sequence"`
	Published time.Time   `json:"published"`
	Model     string      `json:"model"`
	Client    string      `json:"client"`
	ID        string      `json:"id"`
	Code      broker.Code `json:"code"`
	Attempts  int         `json:"attempts"`
	Excused   int         `json:"excused"`
	Worker    string      `json:"worker"`
	Digest    string      `json:"digest"`
	Version   string      `json:"version"` // of the model, with its weight type
	Truncated []string    `json:"truncated,omitempty"`
}

func summaryOf(l *broker.Letter) letterSummary {
	return letterSummary{
		Number: l.Number, Sequence: l.Sequence, Published: l.Published, Model: l.Model, Client: l.Client, ID: l.ID,
		Code: l.Code, Attempts: l.Attempts, Excused: l.Excused, Worker: l.Worker, Digest: l.Digest, Version: l.Version,
		Truncated: l.Truncated,
	}
}

// letterList prints summaries: a table, or JSON.
type letterList struct {
	streams streams
	json    bool
	table   *tabwriter.Writer
	n       int
}

func newLetterList(s streams, json bool) *letterList {
	return &letterList{streams: s, json: json, table: tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)}
}

func (t *letterList) add(letters []broker.Letter) error {
	for i := range letters {
		l := summaryOf(&letters[i])
		if t.json {
			if err := writeJSON(t.streams.out, l); err != nil {
				return err
			}
		} else {
			if t.n == 0 {
				_, _ = fmt.Fprintln(t.table, "NUMBER\tSEQUENCE\tPUBLISHED\tMODEL\tCLIENT\tID\tCODE\tATTEMPTS") // Flush has the error
			}
			_, _ = fmt.Fprintf(t.table, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Number, l.Sequence, // as above
				l.Published.UTC().Format(time.RFC3339), l.Model, shown(l.Client), shown(l.ID), shown(string(l.Code)), l.Attempts)
		}
		t.n++
	}
	return t.table.Flush()
}

// end says so when there was none.
func (t *letterList) end() error {
	if t.n > 0 || t.json {
		return nil
	}
	_, err := fmt.Fprintln(t.streams.err, "no dead letters")
	return err
}

// letterDetails is what show shows of a letter.
type letterDetails struct {
	letterSummary

	Subject  string              `json:"subject"`
	Header   map[string][]string `json:"header"`
	Terminal json.RawMessage     `json:"terminal,omitempty"`
	Tokens   []int32             `json:"tokens"`

	Input    string  `json:"input,omitempty"`
	InputIDs []int32 `json:"input_ids,omitempty"`
	Unread   string  `json:"input_error,omitempty"` // why the input cannot be read
	Payload  []byte  `json:"payload,omitempty"`

	frame     *broker.Frame
	withInput bool
}

// detailsOf returns all of a letter but its input, also where a frame repeats it.
func detailsOf(l *broker.Letter, withInput bool) *letterDetails {
	d := &letterDetails{
		letterSummary: summaryOf(l), Subject: l.Subject, Header: l.Header, Tokens: append([]int32{}, l.Tokens...), withInput: withInput,
	}
	frame, err := broker.DecodeFrame(l.Terminal)
	if err != nil {
		return d
	}
	if frame.Final != nil && !withInput {
		frame.Final.Echo = nil
	}
	d.frame = &frame
	if text, err := broker.AppendFrame(nil, broker.JSON, &frame); err == nil {
		d.Terminal = text
	}
	return d
}

// readInput adds the input, as far as it can be read.
func (d *letterDetails) readInput(l *broker.Letter) {
	d.Payload = l.Payload
	req, err := l.Request()
	if err != nil {
		d.Unread = err.Error()
		return
	}
	d.Input, d.InputIDs = req.Input.Text, req.Input.IDs
}

func (d *letterDetails) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", values...) // Flush has the error
	}
	row("letter", "%d", d.Number)
	row("request", "%d on %s", d.Sequence, shown(d.Subject))
	row("published", "%s", d.Published.UTC().Format(time.RFC3339Nano))
	row("model", "%s", d.Model)
	row("version", "%s", shown(d.Version))
	row("digest", "%s", shown(d.Digest))
	row("client", "%s", shown(d.Client))
	row("id", "%s", shown(d.ID))
	row("code", "%s", shown(string(d.Code)))
	row("attempts", "%d, of which excused %d", d.Attempts, d.Excused)
	row("worker", "%s", shown(d.Worker))
	for _, name := range slices.Sorted(maps.Keys(d.Header)) {
		for _, value := range d.Header[name] {
			row("header", "%s: %s", shown(name), shown(value))
		}
	}
	if d.frame != nil {
		row("terminal", "%s", frameLine(d.frame))
	}
	if len(d.Tokens) > 0 {
		row("tokens", "%s", strings.Trim(fmt.Sprint(d.Tokens), "[]"))
	}
	if len(d.Truncated) > 0 {
		row("left out", "%s", shown(strings.Join(d.Truncated, ", ")))
	}
	switch {
	case !d.withInput:
	case d.Unread != "":
		row("input", "cannot be read: %s", shown(d.Unread))
	case d.InputIDs != nil:
		row("input", "ids %s", strings.Trim(fmt.Sprint(d.InputIDs), "[]"))
	default:
		row("input", "%q", d.Input)
	}
	return t.Flush()
}

// frameLine tells a terminal frame in a line.
func frameLine(f *broker.Frame) string {
	switch {
	case f.Error != nil:
		return fmt.Sprintf("error %s: %s", shown(string(f.Error.Code)), shown(f.Error.Message))
	case f.Final == nil:
		return shown(string(f.Type))
	case f.Final.Label != "":
		return fmt.Sprintf("final %s: %s", shown(string(f.Final.FinishReason)), shown(classification(f.Final.Label, f.Final.Scores)))
	default:
		return fmt.Sprintf("final %s: %q, %d tokens", shown(string(f.Final.FinishReason)), f.Text, len(f.Tokens))
	}
}

// shown returns text that somebody else chose in a form that is safe on a
// terminal: as it is, or quoted when it has characters that do not print.
func shown(text string) string {
	if quoted := fmt.Sprintf("%+q", text); text == "" || quoted != `"`+text+`"` {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// writeJSON prints a value in a line.
func writeJSON(out io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = out.Write(append(b, '\n'))
	}
	if err != nil {
		return errors.Join(errWrite, err)
	}
	return nil
}
