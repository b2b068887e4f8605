// The module mysql, with Go's standard library alone: takes steps from a list of Redis, tells on another how they went.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Step is what a message says, as far as this module needs it.
type Step struct {
	TaskId       string
	Cursor, Type int
	Command      string
	Parameters   map[string]any
	Token        string
}

// Result is what became of it.
type Result struct {
	TaskId       string
	Cursor, Type int
	Event        string
	Code         int
	Message      string
	Parameters   map[string]any
	Token        string
}

func main() {
	broker, err := url.Parse(os.Getenv("BROKER"))
	check(err)
	redis, err := net.Dial("tcp", broker.Host)
	check(err)
	answers := bufio.NewReader(redis)
	for {
		var step Step
		check(json.Unmarshal([]byte(call(redis, answers, "BLPOP", "mysql", "0")[1]), &step))
		tell := func(event string, code int, message string, parameters map[string]any) {
			result, err := json.Marshal(Result{step.TaskId, step.Cursor, step.Type, event, code, message, parameters, step.Token})
			check(err)
			call(redis, answers, "RPUSH", "mysql-results", string(result))
		}
		tell("started", 0, "", nil)
		if result, err := run(step); err != nil {
			tell("failed", 1, err.Error(), nil)
		} else {
			tell("succeeded", 0, "", result)
		}
	}
}

func run(step Step) (map[string]any, error) {
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

// Sends a command and gives the texts of its answer.
func call(redis io.Writer, answers *bufio.Reader, words ...string) []string {
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	_, err := io.WriteString(redis, command)
	check(err)
	return read(answers)
}

func read(answers *bufio.Reader) []string {
	line, err := answers.ReadString('\n')
	check(err)
	rest := strings.TrimSpace(line[1:])
	size, _ := strconv.Atoi(rest)
	switch line[0] {
	case '-':
		log.Fatal(rest)
	case '$':
		text := make([]byte, size+2)
		_, err := io.ReadFull(answers, text)
		check(err)
		return []string{string(text[:size])}
	case '*':
		var all []string
		for ; size > 0; size-- {
			all = append(all, read(answers)...)
		}
		return all
	}
	return []string{rest}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
