package deploytest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/kedacore/keda/v2/version"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// keda returns the content of a file of KEDA's module.
func keda(t *testing.T, name string) []byte {
	t.Helper()
	_ = version.Version // keeps the module in go.mod, where go list finds it
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestScaledObjectFits holds the ScaledObject against the schema in KEDA's
// definition of the resource.
func TestScaledObjectFits(t *testing.T) {
	t.Parallel()
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	decode(t, "definition", keda(t, "config/crd/bases/keda.sh_scaledobjects.yaml"), &definition)
	schema := definition.Spec.Versions[0].Schema.Schema
	if complaints := misfits("", schema, build(t, "keda").scaled["cellmq"]); len(complaints) > 0 {
		t.Errorf("%s", strings.Join(complaints, "\n"))
	}
	if complaints := misfits("", schema, map[string]any{"spec": map[string]any{"triggers": "none", "minReplicas": 1}}); len(complaints) != 3 {
		t.Errorf("a wrong object has the complaints %q, want three", complaints)
	}
}

// misfits says where an object does not fit an OpenAPI schema: unknown and missing
// fields, and values of another type or that are not listed.
func misfits(path string, schema map[string]any, value any) []string {
	var out []string
	switch value := value.(type) {
	case map[string]any:
		if schema["type"] != "object" {
			return []string{fmt.Sprintf("%s is an object, want %v", path, schema["type"])}
		}
		properties, _ := schema["properties"].(map[string]any)
		additional, _ := schema["additionalProperties"].(map[string]any)
		for name, v := range value {
			if property, ok := properties[name].(map[string]any); ok {
				out = append(out, misfits(path+"."+name, property, v)...)
			} else if additional != nil {
				out = append(out, misfits(path+"."+name, additional, v)...)
			} else if properties != nil {
				out = append(out, path+"."+name+" is unknown")
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := value[name.(string)]; !ok {
				out = append(out, fmt.Sprintf("%s.%v is missing", path, name))
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		if schema["type"] != "array" {
			return []string{fmt.Sprintf("%s is an array, want %v", path, schema["type"])}
		}
		for i, v := range value {
			out = append(out, misfits(path+"["+strconv.Itoa(i)+"]", items, v)...)
		}
	case string, float64, bool:
		want := map[string]string{"string": "string", "integer": "float64", "number": "float64", "boolean": "bool"}
		if allowed, ok := schema["enum"].([]any); ok && !slices.Contains(allowed, value) {
			return []string{fmt.Sprintf("%s is %v, want one of %v", path, value, allowed)}
		}
		if kind := reflect.TypeOf(value).String(); want[fmt.Sprint(schema["type"])] != kind && schema["x-kubernetes-int-or-string"] != true {
			return []string{fmt.Sprintf("%s is a %s, want %v", path, kind, schema["type"])}
		}
	}
	return out
}

// fields returns what KEDA's scaler for JetStream reads of a trigger, by its tags:
// whether a field must be there.
func fields(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "scaler.go", keda(t, "pkg/scalers/nats_jetstream_scaler.go"), 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	name := regexp.MustCompile(`name=([^,]+)`)
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		if m := name.FindStringSubmatch(reflect.StructTag(tag).Get("keda")); m != nil {
			out[m[1]] = !strings.Contains(tag, "optional") && !strings.Contains(tag, "default=")
		}
		return true
	})
	if len(out) < 5 {
		t.Fatalf("fields %v", out)
	}
	return out
}

// TestScaledObject wants a trigger for every queue of the models that the workers
// serve, with fields that the scaler knows, and nobody else to set the number of
// workers.
func TestScaledObject(t *testing.T) {
	t.Parallel()
	b := build(t, "keda")
	if b.deployments["cellmq"].Spec.Replicas != nil {
		t.Error("the Deployment sets the number of replicas, and so does KEDA")
	}
	var object struct {
		Spec struct {
			ScaleTargetRef struct{ Name string }
			Triggers       []struct {
				Type     string
				Metadata map[string]string
			}
		}
	}
	content := read(t, "deploy/kubernetes/keda/scaledobject.yaml")
	decode(t, "scaledobject.yaml", content, &object)
	if b.deployments[object.Spec.ScaleTargetRef.Name] == nil {
		t.Errorf("no Deployment %s", object.Spec.ScaleTargetRef.Name)
	}
	known := fields(t)
	var consumers []string
	for _, trigger := range object.Spec.Triggers {
		m := trigger.Metadata
		for name := range m {
			if _, ok := known[name]; !ok {
				t.Errorf("the scaler has no field %s", name)
			}
		}
		for name, required := range known {
			if required && m[name] == "" {
				t.Errorf("trigger %v lacks %s", m, name)
			}
		}
		host, port, _ := strings.Cut(m["natsServerMonitoringEndpoint"], ":")
		service := b.services[strings.TrimSuffix(host, ".cellmq.svc.cluster.local")]
		if trigger.Type != "nats-jetstream" || service == nil || strconv.Itoa(int(service.Spec.Ports[1].Port)) != port || m["stream"] != "INFER" || m["account"] != "$G" {
			t.Errorf("trigger %s %v", trigger.Type, m)
		}
		consumers = append(consumers, m["consumer"])
	}
	_, env := worked(t, b)
	slices.Sort(consumers)
	if want := queues(t, strings.Split(env["CELLMQ_MODELS"], ",")); !slices.Equal(consumers, want) {
		t.Errorf("triggers for %v, and the queues are %v", consumers, want)
	}
}

// queues returns the names of the consumers that a worker with these models makes
// in the stream of requests.
func queues(t *testing.T, models []string) []string {
	t.Helper()
	server := brokertest.Server(t)
	started(t, server, models...)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "INFER")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	names := stream.ConsumerNames(t.Context())
	for name := range names.Name() {
		out = append(out, name)
	}
	if names.Err() != nil {
		t.Fatal(names.Err())
	}
	slices.Sort(out)
	return out
}
