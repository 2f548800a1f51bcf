// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package bench

import "time"

// processorTime gives 0: it is unknown here.
func processorTime() time.Duration { return 0 }
