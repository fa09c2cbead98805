// Submits a prompt, follows its events, and downloads the video. Standard library only.
//
//	TURNOUT_URL=http://127.0.0.1:8000 TURNOUT_API_KEY=tk-… go run . "a red square moving to the right" square.mp4
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

type video struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

type event struct {
	ID       string  `json:"id"`
	Type     string  `json:"type"`
	Stage    string  `json:"stage"`
	Progress float64 `json:"progress"`
	Error    *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func call(method, path string, body []byte, headers map[string]string) (*http.Response, error) {
	request, err := http.NewRequest(method, os.Getenv("TURNOUT_URL")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TURNOUT_API_KEY"))
	for name, value := range headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		response.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, said)
	}
	return response, nil
}

// submit may be repeated: the same Idempotency-Key starts nothing twice.
func submit(prompt string) (video, error) {
	body, _ := json.Marshal(map[string]string{"prompt": prompt})
	headers := map[string]string{"Content-Type": "application/json", "Idempotency-Key": fmt.Sprint(time.Now().UnixNano())}
	response, err := call("POST", "/v1/videos", body, headers)
	if err != nil {
		return video{}, err
	}
	defer response.Body.Close()
	var made video
	return made, json.NewDecoder(response.Body).Decode(&made)
}

// follow returns when the video is finished. A connection that breaks goes on after the last event.
func follow(id string) error {
	last := ""
	for {
		response, err := call("GET", "/v1/videos/"+id+"/events", nil, map[string]string{"Last-Event-ID": last})
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, found := strings.CutPrefix(lines.Text(), "data: ")
			if !found {
				continue
			}
			var now event
			if err := json.Unmarshal([]byte(data), &now); err != nil {
				return err
			}
			if now.ID != "" {
				last = now.ID
			}
			fmt.Printf("%s %s %.0f%%\n", now.Type, now.Stage, now.Progress)
			switch now.Type {
			case "video.completed":
				response.Body.Close()
				return nil
			case "video.failed", "video.cancelled":
				response.Body.Close()
				if now.Error != nil {
					return fmt.Errorf("%s: %s", now.Type, now.Error.Message)
				}
				return fmt.Errorf("%s", now.Type)
			}
		}
		response.Body.Close()
		time.Sleep(time.Second)
	}
}

func download(id, file string) error {
	response, err := call("GET", "/v1/videos/"+id+"/content", nil, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, response.Body); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: go run . PROMPT FILE")
	}
	made, err := submit(os.Args[1])
	if err == nil {
		err = follow(made.ID)
	}
	if err == nil {
		err = download(made.ID, os.Args[2])
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(os.Args[2])
}
