// Package mysql is what the module mysql does, whatever its broker is.
package mysql

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Step is what a message says, as far as this module needs it.
type Step struct {
	TaskId       string
	Cursor, Type int
	Command      string
	Parameters   map[string]any
	Timeout      int32
	Token        string
}

// Result is what is told of it.
type Result struct {
	TaskId       string
	Cursor, Type int
	Event        string
	Code         int
	Message      string
	Parameters   map[string]any
	Token        string
}

// Read reads a message. The token of most brokers comes beside the document, and not in it.
func Read(body []byte, token string) (step Step, err error) {
	step.Token = token
	return step, json.Unmarshal(body, &step)
}

// Run runs a step and tells that it began and how it ended. It fails when telling does, never because the step did.
func (step Step) Run(tell func(result []byte) error) error {
	result := Result{TaskId: step.TaskId, Cursor: step.Cursor, Type: step.Type, Token: step.Token, Event: "started"}
	if err := send(result, tell); err != nil {
		return err
	}
	if returned, err := step.run(); err != nil {
		result.Event, result.Code, result.Message = "failed", 1, err.Error()
	} else {
		result.Event, result.Parameters = "succeeded", returned
	}
	return send(result, tell)
}

func send(result Result, tell func(result []byte) error) error {
	document, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return tell(document)
}

// Either command may come twice, and leaves then what it had left the first time.
func (step Step) run() (map[string]any, error) {
	folder := filepath.Join("instances", step.TaskId)
	switch step.Command {
	case "init_instance":
		settings := fmt.Sprintf("[mysqld]\ninnodb_buffer_pool_size = %vM\n", step.Parameters["Memory"])
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		err := os.WriteFile(filepath.Join(folder, "my.cnf"), []byte(settings), 0o644)
		return map[string]any{"Folder": folder}, err
	case "clean_instance":
		return map[string]any{}, os.RemoveAll(folder)
	}
	return nil, fmt.Errorf("mysql has no command %s", step.Command)
}
