package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

var zeros = strings.Repeat("0", sumLength)

func valid() *Manifest {
	return &Manifest{
		Format: 1, Model: "m", Version: "v 1", Digest: zeros, Family: "rnn_lm", Cells: []string{"lstm0"},
		Files: []File{
			{Name: "config.json", Size: 0, SHA256: zeros, Parts: []string{}},
			{Name: "model.safetensors", Size: PartBytes + 1, SHA256: zeros, Parts: []string{zeros, zeros}},
		},
	}
}

// TestHostileManifests: each is refused with a short text that names the field.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	change := func(f func(m *Manifest)) []byte {
		m := valid()
		f(m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := change(func(*Manifest) {})
	if _, err := parseManifest(good, "m", "v 1"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		data []byte
		text string
	}{
		"nothing":           {nil, "EOF"},
		"null":              {[]byte("null"), "model"},
		"a receipt":         {[]byte(`{"stream":"INFER","seq":7}`), "stream"},
		"unknown key":       {[]byte(`{"` + long + `":1}`), "unknown field"},
		"unknown of a file": {[]byte(`{"files":[{"` + long + `":1}]}`), "unknown field"},
		"number too long":   {[]byte(`{"golden":` + strings.Repeat("9", 1000) + `}`), "number"},
		"more behind":       {append(good[:len(good):len(good)], "{}"...), "behind"},
		"files no list":     {[]byte(`{"files":{"name":"a"}}`), "list"},
		"too long":          {[]byte(strings.Repeat(" ", recordBytes+1)), "262144"},
		"10^6 parts": {
			change(func(m *Manifest) { m.Files[1].Parts = make([]string, 1e6) }), "262144",
		},
		"parts of nothing":  {change(func(m *Manifest) { m.Files[1].Parts = make([]string, 80000) }), "80000 parts, 2 wanted"},
		"too few parts":     {change(func(m *Manifest) { m.Files[1].Parts = m.Files[1].Parts[:1] }), "1 parts, 2 wanted"},
		"too many parts":    {change(func(m *Manifest) { m.Files[0].Parts = []string{zeros} }), "1 parts, 0 wanted"},
		"part no sum":       {change(func(m *Manifest) { m.Files[1].Parts[1] = zeros[1:] + ">" }), "part of"},
		"negative size":     {change(func(m *Manifest) { m.Files[1].Size = -1 }), "-1 bytes"},
		"large file":        {change(func(m *Manifest) { m.Files[1].Size = maxFileBytes + 1 }), "4294967297"},
		"largest size":      {change(func(m *Manifest) { m.Files[1].Size = 1<<63 - 1 }), "9223372036854775807"},
		"large version":     {change(large), "5368709120"},
		"65 files":          {change(many), "more than 64"},
		"10^5 files":        {[]byte(`{"files":[` + strings.Repeat("{},", 80000) + `{}]}`), "more than 64"},
		"no files":          {change(func(m *Manifest) { m.Files = []File{} }), "0, 1 to 64"},
		"parent":            {change(func(m *Manifest) { m.Files[0].Name = "../name" }), `"../name"`},
		"root":              {change(func(m *Manifest) { m.Files[0].Name = "/name" }), `"/name"`},
		"windows":           {change(func(m *Manifest) { m.Files[0].Name = `a\b` }), "a name of at most 255 bytes"},
		"here":              {change(func(m *Manifest) { m.Files[0].Name = "." }), "a name of at most 255 bytes"},
		"hidden":            {change(func(m *Manifest) { m.Files[0].Name = ".x" }), "a name of at most 255 bytes"},
		"no name":           {change(func(m *Manifest) { m.Files[0].Name = "" }), "a name of at most 255 bytes"},
		"name of a line":    {change(func(m *Manifest) { m.Files[0].Name = "a\nb" }), "a name of at most 255 bytes"},
		"long name":         {change(func(m *Manifest) { m.Files[0].Name = long }), "a name of at most 255 bytes"},
		"same name":         {change(func(m *Manifest) { m.Files[0].Name = m.Files[1].Name }), "order"},
		"sum of a file":     {change(func(m *Manifest) { m.Files[0].SHA256 = strings.ToUpper(zeros[1:] + "a") }), "sha256"},
		"other model":       {change(func(m *Manifest) { m.Model = "n" }), "n@v 1, m@v 1 wanted"},
		"other version":     {change(func(m *Manifest) { m.Version = long }), "m@v 1 wanted"},
		"digest":            {change(func(m *Manifest) { m.Digest = long }), "digest"},
		"format":            {change(func(m *Manifest) { m.Format = 2 }), "format: 2"},
		"family":            {change(func(m *Manifest) { m.Family = long }), "family"},
		"cells":             {change(func(m *Manifest) { m.Cells = []string{long} }), "cells"},
		"number of cells":   {change(func(m *Manifest) { m.Cells = make([]string, 257) }), "257"},
		"negative golden":   {change(func(m *Manifest) { m.Golden = -1 }), "golden"},
		"negative weights":  {change(func(m *Manifest) { m.Parameters = -1 }), "parameters"},
		"version of a line": {change(func(m *Manifest) { m.Version = "a\nb" }), "version"},
	} {
		want := "v 1"
		if name == "version of a line" {
			want = "a\nb"
		}
		_, err := parseManifest(c.data, "m", want)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 512 {
			t.Errorf("%s: %v, %q wanted", name, err, c.text)
		}
	}
}

func large(m *Manifest) {
	parts := make([]string, maxFileBytes/PartBytes)
	for i := range parts {
		parts[i] = zeros
	}
	for i := range m.Files {
		m.Files[i].Size, m.Files[i].Parts = maxFileBytes, parts
	}
}

func many(m *Manifest) {
	m.Files = nil
	for i := range maxFiles + 1 {
		m.Files = append(m.Files, File{Name: fmt.Sprintf("%02d", i), SHA256: zeros})
	}
}

// FuzzManifest: what is read is within its bounds, and reading it takes no more
// memory than a factor of its size.
func FuzzManifest(f *testing.F) {
	good, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"stream":"INFER","seq":7}`))
	f.Add([]byte(`{"files":[` + strings.Repeat("{},", 20000) + `{}]}`))
	f.Add([]byte(`{"files":[{"parts":[` + strings.Repeat(`"",`, 20000) + `""]}]}`))
	f.Add([]byte(`{"cells":[` + strings.Repeat(`"",`, 80000) + `""]}`))
	f.Add([]byte(`{"files":[],"files":[` + strings.Repeat(`{"parts":[""]},`, 63) + `{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for try := 0; ; try++ { // others may allocate meanwhile: the least of some runs counts
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, err := parseManifest(data, "m", "v 1")
			runtime.ReadMemStats(&after)
			switch {
			case err == nil && (m.check() != nil || m.Model != "m" || m.Version != "v 1"):
				t.Fatalf("accepted: %+v", m)
			case err != nil && (!errors.Is(err, ErrMalformed) || len(err.Error()) > 512):
				t.Fatalf("%v", err)
			}
			grown := after.TotalAlloc - before.TotalAlloc
			if grown <= uint64(64*len(data)+64<<10) {
				return
			}
			if try == 5 {
				t.Fatalf("%d bytes allocated for %d: %v", grown, len(data), err)
			}
		}
	})
}
