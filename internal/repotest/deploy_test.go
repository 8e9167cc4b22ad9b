package repotest_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/worker"
)

// TestSettingsExist wants every CELLMQ_ variable that a document or a file for
// deployment names to be one that the worker reads. CELLMQ_IMAGE and
// CELLMQ_BINARY belong to the compose files and the stack test, CELLMQ_WORKERS is
// a bucket.
func TestSettingsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"CELLMQ_IMAGE": true, "CELLMQ_BINARY": true, "CELLMQ_WORKERS": true}
	for _, s := range worker.Settings() {
		known[s.Variable] = true
	}
	variable := regexp.MustCompile(`\bCELLMQ_[A-Z0-9_]*[A-Z0-9]\b`)
	seen := 0
	for _, name := range files(t) {
		if path.Ext(name) != ".md" && path.Ext(name) != ".yml" && !strings.HasPrefix(name, "deploy/") {
			continue
		}
		for _, v := range variable.FindAllString(string(read(t, name)), -1) {
			seen++
			if !known[v] {
				t.Errorf("%s: no setting is called %s", name, v)
			}
		}
	}
	if seen == 0 {
		t.Error("no file names a setting")
	}
}

// TestDockerfiles wants what a Dockerfile copies from its context to exist. What is
// below deploy/offline/bin are binaries that deploy/offline/stack-test builds first.
func TestDockerfiles(t *testing.T) {
	t.Parallel()
	contexts := map[string]string{
		"deploy/Dockerfile":                    ".",
		"deploy/offline/cellmq.Dockerfile":     "deploy/offline/bin/cellmq",
		"deploy/offline/loadtest.Dockerfile":   "deploy/offline/bin/loadtest",
		"deploy/offline/nats.Dockerfile":       "deploy/offline/bin/nats",
		"deploy/offline/prometheus.Dockerfile": "deploy/offline/bin/prometheus",
	}
	copied := regexp.MustCompile(`(?m)^COPY ([^-\n].*)$`)
	for _, name := range matching(t, "*Dockerfile") {
		dir, ok := contexts[name]
		if !ok {
			t.Errorf("%s: the test does not know its context", name)
			continue
		}
		content := string(read(t, name))
		for _, m := range copied.FindAllStringSubmatch(content, -1) {
			fields := strings.Fields(m[1])
			for _, source := range fields[:len(fields)-1] {
				if !strings.HasPrefix(dir, "deploy/offline/bin/") && !exists(path.Join(dir, source)) {
					t.Errorf("%s copies %s, which does not exist", name, source)
				}
			}
		}
		if !strings.Contains(content, "\nENTRYPOINT [") {
			t.Errorf("%s has no entry point", name)
		}
	}
}

// TestCompose wants the compose files to name Dockerfiles and mounted files
// that exist, and the NATS server to be of the version that is embedded.
func TestCompose(t *testing.T) {
	t.Parallel()
	build := regexp.MustCompile(`context: (\S+)\n\s+dockerfile: (\S+)`)
	mount := regexp.MustCompile(`- (\./\S+):/`)
	builds := 0
	for _, name := range matching(t, "docker-compose*.yml") {
		content := string(read(t, name))
		for _, m := range build.FindAllStringSubmatch(content, -1) {
			builds++
			if file := path.Join(m[1], m[2]); !exists(file) {
				t.Errorf("%s: no Dockerfile %s", name, file)
			}
		}
		for _, m := range mount.FindAllStringSubmatch(content, -1) {
			if !exists(m[1]) {
				t.Errorf("%s: no file %s to mount", name, m[1])
			}
		}
	}
	if builds == 0 {
		t.Error("no compose file builds anything")
	}

	required := regexp.MustCompile(`nats-server/v2 v(\d+\.\d+)\.`).FindStringSubmatch(string(read(t, "go.mod")))
	image := regexp.MustCompile(`nats:(\d+\.\d+)`).FindStringSubmatch(string(read(t, "docker-compose.yml")))
	if required == nil || image == nil || required[1] != image[1] {
		t.Errorf("go.mod requires nats-server %v, docker-compose.yml runs %v", required, image)
	}
}

// TestToolchain wants the image to be built with the language version of go.mod.
func TestToolchain(t *testing.T) {
	t.Parallel()
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(read(t, "go.mod")))
	image := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+)`).FindStringSubmatch(string(read(t, "deploy/Dockerfile")))
	if language == nil || image == nil || language[1] != image[1] {
		t.Errorf("go.mod says Go %v, deploy/Dockerfile %v", language, image)
	}
}

// TestDockerContext wants every directory with Go code at the top to go to the
// Docker daemon: an image that lacks one does not build.
func TestDockerContext(t *testing.T) {
	t.Parallel()
	sent := map[string]bool{}
	for line := range strings.Lines(string(read(t, ".dockerignore"))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			sent[name] = true
		}
	}
	for _, name := range matching(t, "*.go") {
		if top, _, _ := strings.Cut(name, "/"); !sent[top] {
			t.Errorf(".dockerignore keeps %s from the Docker daemon", top)
		}
	}
}
