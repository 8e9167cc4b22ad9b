//go:build unix

package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/cellmq/cellmq/broker"
)

// ask is a request of the workload.
type ask struct {
	model   string
	input   string
	options broker.RequestOptions
	// twice: the client publishes it a second time.
	twice bool
}

// workload returns n requests of all families. The ids are part of it: what is
// sampled without a seed depends on them.
func workload(seed uint64, n int) []ask {
	r := rand.New(rand.NewPCG(seed, 1))
	asks := make([]ask, n)
	for i := range asks {
		a := ask{twice: r.IntN(8) == 0}
		a.options = broker.RequestOptions{
			ID:          fmt.Sprintf("chaos%08d", i),
			Priority:    pick(r, broker.High, broker.Std, broker.Std, broker.Low),
			Mode:        pick(r, broker.ModeStream, broker.ModeStream, broker.ModeStream, broker.ModeResume, broker.ModeFinal),
			ContentType: pick(r, broker.TypeMsgPack, broker.TypeMsgPack, broker.TypeJSON),
		}
		var input string
		var params broker.Params
		switch r.IntN(10) {
		case 0, 1:
			a.model, input = "langid", sentence(r)
			params.Ramps = r.IntN(3) == 0
		case 2, 3:
			a.model, input = "listops", expression(r, 4)
		case 4, 5, 6:
			a.model, input, params = "g2p-en", phrase(r, 1+r.IntN(6)), search(r)
		default:
			a.model, input, params = "kjv-lm", phrase(r, 1+r.IntN(8)), generation(r)
		}
		a.input, a.options.Payload = input, payload(a.options.ContentType, input, &params)
		asks[i] = a
	}
	return asks
}

// payload encodes a request.
func payload(contentType, input string, p *broker.Params) []byte {
	keys := map[string]any{"input": input, "ramps": p.Ramps}
	if len(p.Stop) > 0 {
		keys["stop"] = p.Stop
	}
	set(keys, "max_tokens", p.MaxTokens)
	set(keys, "temperature", p.Temperature)
	set(keys, "top_k", p.TopK)
	set(keys, "top_p", p.TopP)
	set(keys, "seed", p.Seed)
	set(keys, "beam_width", p.BeamWidth)
	set(keys, "n_best", p.NBest)
	set(keys, "logprobs", p.LogProbs)
	encode := msgpack.Marshal
	if contentType == broker.TypeJSON {
		encode = json.Marshal
	}
	b, err := encode(keys)
	if err != nil {
		panic(err) // texts and numbers
	}
	return b
}

func set[T any](keys map[string]any, name string, value *T) {
	if value != nil {
		keys[name] = *value
	}
}

// generation is how a language model is to go on: greedily, by chance, by
// search, until a text, with candidates.
func generation(r *rand.Rand) broker.Params {
	p := broker.Params{MaxTokens: ptr(8 + r.IntN(400))}
	switch r.IntN(5) {
	case 0:
		p.Temperature, p.TopK = ptr(0.9), ptr(40)
	case 1:
		p.Temperature, p.TopP, p.Seed = ptr(1.1), ptr(0.9), ptr(r.Uint64())
	case 2:
		p.BeamWidth, p.NBest, p.MaxTokens = ptr(3), ptr(2), ptr(4+r.IntN(12))
	case 3:
		p.LogProbs, p.Stop = ptr(3), []string{" and", ";"}
	case 4:
		p.MaxTokens = ptr(700 + r.IntN(325)) // many times a checkpoint's distance
	}
	return p
}

// search is how words are to be pronounced.
func search(r *rand.Rand) broker.Params {
	switch r.IntN(4) {
	case 0:
		return broker.Params{BeamWidth: ptr(4)}
	case 1:
		return broker.Params{LogProbs: ptr(2)}
	default:
		return broker.Params{}
	}
}

func phrase(r *rand.Rand, words int) string {
	all := strings.Fields("and the river of morning gave light unto seven quiet hills where shepherds counted their flocks by lantern " +
		"cellular batching gathers steps from strangers")
	parts := make([]string, words)
	for i := range parts {
		parts[i] = all[r.IntN(len(all))]
	}
	return strings.Join(parts, " ")
}

func sentence(r *rand.Rand) string {
	return pick(r,
		"Der Zug nach Leipzig ist heute schon wieder zu spät.", "Mañana iremos todos juntos al mercado de la plaza.",
		"Il pleut depuis trois jours sur les toits de la ville.", "Vandaag schijnt de zon over het hele land.",
		"Wszyscy czekali na pociąg do Krakowa.", "The harbour was empty when the last boat came in.",
		"Тихо падал снег на старую дорогу.", "庭に古い桜の木があります。")
}

// expression is a list operation written down as a tree.
func expression(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return strconv.Itoa(r.IntN(10))
	}
	text := pick(r, "[MAX", "[MIN", "[MED")
	for range 2 + r.IntN(3) {
		text = "( " + text + " " + expression(r, depth-1) + " )"
	}
	return "( " + text + " ] )"
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func ptr[T any](v T) *T { return &v }
