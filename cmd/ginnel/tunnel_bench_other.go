// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// inNamespace needs Linux.
func inNamespace(context.Context, *cobra.Command, ...string) error { return errors.ErrUnsupported }
