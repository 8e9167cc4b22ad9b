package worker

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// Setting is one documented configuration variable.
type Setting struct {
	// Variable is the environment variable, for example CELLMQ_SLOTS.
	Variable string
	// Default is what holds when it is not set; empty when that is nothing.
	Default string
	// Description is the field's documentation.
	Description string
}

// Settings lists every configuration variable in the order of [Config].
func Settings() []Setting {
	return appendSettings(nil, reflect.ValueOf(DefaultConfig()))
}

// SettingsTable returns the settings as a Markdown table.
func SettingsTable() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, s := range Settings() {
		def := ""
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Variable, def, s.Description)
	}
	return b.String()
}

func appendSettings(out []Setting, v reflect.Value) []Setting {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			out = appendSettings(out, v.Field(i))
			continue
		}
		out = append(out, Setting{
			Variable:    EnvPrefix + "_" + envWords(field.Name),
			Default:     settingText(v.Field(i).Interface()),
			Description: field.Tag.Get("desc"),
		})
	}
	return out
}

// envWords turns a field's name into the words of its variable: NatsURL is
// NATS_URL.
func envWords(name string) string {
	words := regexp.MustCompile(`[A-Z]+[a-z0-9]*`).FindAllString(name, -1)
	return strings.ToUpper(strings.Join(words, "_"))
}

func settingText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return shortDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// shortDuration writes 15m for what [time.Duration.String] calls 15m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
