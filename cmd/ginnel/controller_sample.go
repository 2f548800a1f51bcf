// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

// sampleConfig is the configuration file of a new controller: all keys, those
// that only repeat a default as comments.
const sampleConfig = `# Configuration of a Ginnel controller. What is absent has its default. After a
# change: ginnel controller config check --config FILE, then send the controller
# SIGHUP: all but listen and advertise then count at once. A file with a mistake
# changes nothing.

# Where to accept routers that dial, new identities and the API's clients.
# Default: nowhere; then the controller dials, and opens no port.
#listen: "tls:0.0.0.0:7000"

# What others dial in place of listen.
#advertise: "tls:controller.example:7000"

# An HTTP proxy that opens the way to routers by CONNECT.
#dialProxy: "http://USER:PASSWORD@proxy.example:3128"

# The controller dials the ctrl listeners of routers that are in one of these.
#groups: [default]

# How routers are dialed.
dialer:
  # A random share of the delay is added to it, so that a fleet does not move in step.
  dialSpread: 0.1
  # Before the first dial: routers that dial by themselves come first.
  #dialDelay: 30s
  # Delay after a failure: the first, the longest, the factor between two.
  #minRetryInterval: 1s
  #maxRetryInterval: 5m
  #retryBackoffFactor: 1.5
  # A connection that lived shorter than this has failed.
  #fastFailureWindow: 5s
  # How long one dial may take, how many run at once, how many wait.
  #connectTimeout: 5s
  #maxWorkers: 64
  #queueSize: 1024
  # Between the dials of routers that one scan found.
  #scanSpread: 50ms
  # Whether to dial at all.
  #enabled: true

# How long the certificates are valid that are issued from now on. Each is renewed
# by itself when two thirds of that are over.
#certificateLife: 2160h

# debug, info, warn or error.
#logLevel: info
`
