// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
