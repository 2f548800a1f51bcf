// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostdns

import (
	"errors"
	"os"
)

var errHeld = errors.New("locked by another process")

// lock does nothing here: a file is always taken for that of a dead process.
func lock(*os.File) error { return nil }
