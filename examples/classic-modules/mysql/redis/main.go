// The module mysql on a list of Redis, with Go's standard library alone.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"classic-modules/mysql"
)

func main() {
	broker, err := url.Parse(os.Getenv("BROKER"))
	check(err)
	redis, err := net.Dial("tcp", broker.Host)
	check(err)
	answers := bufio.NewReader(redis)
	for {
		// A list has no room beside the document: the token is in it.
		step, err := mysql.Read([]byte(call(redis, answers, "BLPOP", "mysql", "0")[1]), "")
		check(err)
		check(step.Run(func(result []byte) error {
			call(redis, answers, "RPUSH", "mysql-results", string(result))
			return nil
		}))
	}
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
