package main

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	got, err := plain(strings.TrimLeft(`
syntax = "proto3";

import "buf/validate/validate.proto";
import "google/protobuf/empty.proto";
import "team/v1/info.proto";

option go_package = "own";

service Far {
  // Says it.
  rpc Say(Said) returns (google.protobuf.Empty) {
    option (google.api.http) = {
      get: "/say;}"
      additional_bindings: {get: "/{tenant}/say"}
    };
    option (google.api.method_signature) = "text";
  }
}

message Said {
  option (text_sets) = "text";
  string text = 1 [(field).cel = {expression: "this != ']' && this != \"x\""}];
  string old = 2 [deprecated = true];
  repeated string all = 3 [
    (field).cel = {id: "a"},
    (other) = 1
  ];
}
`, "\n"))
	want := strings.TrimLeft(`
syntax = "proto3";

import "google/protobuf/empty.proto";
import "team/v1/info.proto";

option go_package = "own";

service Far {
  // Says it.
  rpc Say(Said) returns (google.protobuf.Empty);
}

message Said {
  string text = 1;
  string old = 2 [deprecated = true];
  repeated string all = 3;
}
`, "\n")
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := plain("option (text_sets) = \"text\""); err == nil {
		t.Error("an option without an end")
	}
}
