// Checks what Windlass is deployed with, by the libraries that read it where it is used:
//
//	program containerfile FILE          the parser of BuildKit
//	program compose FILE                the loader of Docker Compose; prints the project as JSON
//	program chart FOLDER [NAME=VALUE…]  the linter and the renderer of Helm, and the types of Kubernetes; prints the objects as JSON
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"helm.sh/helm/v3/pkg/chart"
	charts "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: program containerfile|compose|chart PATH [NAME=VALUE…]")
	}
	switch kind, path := arguments[0], arguments[1]; kind {
	case "containerfile":
		return containerfile(path)
	case "compose":
		return compose(path)
	case "chart":
		return renderChart(path, arguments[2:])
	default:
		return fmt.Errorf("unknown kind %q", kind)
	}
}

func containerfile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		return err
	}
	for _, warning := range parsed.Warnings {
		return fmt.Errorf("%s: %s", path, warning.Short)
	}
	_, _, err = instructions.Parse(parsed.AST, nil)
	return err
}

func compose(path string) error {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: path}},
		Environment: types.Mapping{},
	})
	if err != nil {
		return err
	}
	return print(project)
}

func renderChart(folder string, settings []string) error {
	loaded, err := charts.Load(folder)
	if err != nil {
		return err
	}
	values := map[string]any{}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return err
		}
	}
	objects, err := render(loaded, values)
	if err != nil {
		return err
	}
	return print(objects)
}

// Every object, by its kind and name; unknown fields and duplicate keys are errors.
func render(loaded *chart.Chart, values map[string]any) (map[string]any, error) {
	if err := loaded.Validate(); err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "test", Namespace: "default", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]any{}
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			if len(bytes.TrimSpace([]byte(document))) == 0 {
				continue
			}
			kind, object, err := decode(document)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			objects[kind] = object
		}
	}
	return objects, nil
}

func decode(document string) (string, any, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return "", nil, err
	}
	var object any
	switch kind.APIVersion + "/" + kind.Kind {
	case "apps/v1/Deployment":
		object = &apps.Deployment{}
	case "apps/v1/StatefulSet":
		object = &apps.StatefulSet{}
	case "policy/v1/PodDisruptionBudget":
		object = &policy.PodDisruptionBudget{}
	case "v1/Service":
		object = &core.Service{}
	case "v1/ConfigMap":
		object = &core.ConfigMap{}
	default:
		return "", nil, fmt.Errorf("unknown object %s/%s", kind.APIVersion, kind.Kind)
	}
	return kind.Kind, object, yaml.UnmarshalStrict([]byte(document), object)
}

func print(object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
