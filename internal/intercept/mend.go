// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"log/slog"
	"time"
)

// mendInterval is how often is looked whether all is there that we made: a firewall
// that is loaded anew flushes the rules of others, and some network managers remove
// routes that they do not know. Nobody tells us of either.
const mendInterval = 2 * time.Second

// mendLoop puts back what other programs take away, until the Interceptor is closed.
func (i *Interceptor) mendLoop(log *slog.Logger) {
	tick := time.NewTicker(mendInterval)
	defer tick.Stop()
	failure := "" // what was said last
	for {
		select {
		case <-i.sockets.done:
			return
		case <-tick.C:
		}
		mended, err := i.mend()
		switch {
		case err == nil && mended:
			log.Warn("another program took away routes or rules of ours; they are there again")
			failure = ""
		case err != nil && err.Error() != failure:
			log.Error("another program took away routes or rules of ours", "err", err)
			failure = err.Error()
		}
	}
}

// mend puts back what is missing, and reports whether anything was.
func (i *Interceptor) mend() (mended bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	mended, err = i.mendTo()
	for n, t := range i.transparent {
		if t != nil && !t.whole() {
			mended = true
			err = errors.Join(err, t.again(), t.set(ofFamily(i.wide, n)))
		}
	}
	return mended, err
}
