package batchmaker

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// csv returns the table of all runs, in the order in which they are in the
// report.
func (l *lab) csv() []byte {
	var b bytes.Buffer
	b.WriteString("study,machine,server,setting,offered_per_s,throughput_per_s,kept_up,p50_ms,p90_ms,p99_ms," +
		"queueing_p50_ms,queueing_p90_ms,queueing_p99_ms,computing_p50_ms,computing_p90_ms,computing_p99_ms,first_token_p90_ms,padding,rows_per_step\n")
	short := func(v float64) string { return strconv.FormatFloat(round(v), 'f', -1, 64) }
	for i := range l.runs {
		r := &l.runs[i]
		fields := []string{quoted(r.study), quoted(r.machine), quoted(r.server), quoted(r.setting)}
		fields = append(fields, short(r.offered), short(r.throughput), strconv.FormatBool(r.sustained()))
		for _, d := range []*[100]float64{latencies(&r.outcome), queueings(&r.outcome), computings(&r.outcome)} {
			fields = append(fields, short(d[49]), short(d[89]), short(d[98]))
		}
		fields = append(fields, short(milliseconds(r.firstToken[89])), short(r.padding), short(r.rowsPerStep))
		fmt.Fprintln(&b, strings.Join(fields, ","))
	}
	return b.Bytes()
}

// quoted returns a field of CSV.
func quoted(s string) string {
	if !strings.ContainsAny(s, `,"`) {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
