// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"encoding/json"
	"testing"
	"time"
)

func TestDurationInJSON(t *testing.T) {
	b, err := json.Marshal(Attempt{Terminator: "t1", Code: RouterErrConnRefused, Took: Duration(1500 * time.Millisecond)})
	want := `{"terminator":"t1","code":"ROUTER_ERR_CONN_REFUSED","cause":"","took":"1.5s"}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
	var back Attempt
	if err := json.Unmarshal(b, &back); err != nil || back.Took != Duration(1500*time.Millisecond) {
		t.Errorf("got %v, %v", back.Took, err)
	}
	if err := json.Unmarshal([]byte(`{"took":"soon"}`), &back); err == nil {
		t.Error("a duration without a number was taken")
	}
}
