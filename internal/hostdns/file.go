// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package hostdns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The lines of a resolv.conf that we wrote. Every former line stands in it as a
// comment, and whoever reads it sees what to do without us.
const (
	ours       = "# ginnel answers names here while its tunneler runs. `ginnel tunnel cleanup` puts back what was here before:"
	linkMark   = "#link "   // it was a symbolic link, to this
	absentMark = "#absent"  // there was none
	lineMark   = "#was "    // a former line
	lastMark   = "#was-end" // a former file ended without a newline
)

// maxConf bounds what is read of a resolv.conf, in bytes.
const maxConf = 64 << 10

// conf is a resolv.conf as found.
type conf struct {
	absent bool
	link   string // where it points, if it is a symbolic link
	text   []byte
}

func readFile(path string) (conf, error) {
	var c conf
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return conf{absent: true}, nil
	}
	if err != nil {
		return conf{}, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if c.link, err = os.Readlink(path); err != nil {
			return conf{}, err
		}
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // a link to what is not there yet
		return c, nil
	}
	if err != nil {
		return conf{}, err
	}
	defer func() { _ = f.Close() }() // only read from
	if c.text, err = io.ReadAll(io.LimitReader(f, maxConf+1)); err != nil {
		return conf{}, err
	}
	if len(c.text) > maxConf {
		return conf{}, fmt.Errorf("%s is longer than %d bytes: no resolv.conf", path, maxConf)
	}
	return c, nil
}

// equal reports whether two files are the same.
func (c conf) equal(d conf) bool {
	return c.absent == d.absent && c.link == d.link && bytes.Equal(c.text, d.text)
}

// target gives what a link at path pointed to as it is now; empty where nothing is.
func (c conf) target(path string) conf {
	to := c.link
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	now, err := readFile(to)
	if err != nil {
		return conf{}
	}
	return now
}

// servers gives the name servers, in order.
func (c conf) servers() []netip.Addr {
	var servers []netip.Addr
	for line := range strings.Lines(string(c.text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if server, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, server)
		}
	}
	return servers
}

// asksStub reports whether programs ask systemd-resolved, at its addresses, and nobody else.
func (c conf) asksStub() bool {
	servers := c.servers()
	for _, server := range servers {
		if server != netip.AddrFrom4([4]byte{127, 0, 0, 53}) && server != netip.AddrFrom4([4]byte{127, 0, 0, 54}) {
			return false
		}
	}
	return len(servers) > 0
}

// redirect writes a file that names server alone and keeps in comments what it
// replaces. Search domains and options stay in force. While hold is open, the file
// is that of a tunneler that lives.
func (c conf) redirect(path string, server netip.Addr) (hold *os.File, err error) {
	var b bytes.Buffer
	fmt.Fprintln(&b, ours)
	switch {
	case c.absent:
		fmt.Fprintln(&b, absentMark)
	case c.link != "":
		fmt.Fprintln(&b, linkMark+c.link)
	}
	for line := range strings.Lines(string(c.text)) {
		b.WriteString(lineMark + strings.TrimSuffix(line, "\n") + "\n")
	}
	if len(c.text) > 0 && c.text[len(c.text)-1] != '\n' {
		fmt.Fprintln(&b, lastMark)
	}
	fmt.Fprintln(&b, "nameserver", server)
	for line := range strings.Lines(string(c.text)) {
		if fields := strings.Fields(line); len(fields) > 1 && (fields[0] == "search" || fields[0] == "domain" || fields[0] == "options") {
			fmt.Fprintln(&b, strings.TrimSuffix(line, "\n"))
		}
	}
	return replaceFile(path, b.Bytes())
}

// former gives what a file of ours replaced; ok is false when it is not ours.
func (c conf) former() (before conf, ok bool) {
	rest, ok := strings.CutPrefix(string(c.text), ours+"\n")
	if !ok {
		return conf{}, false
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if text, is := strings.CutPrefix(line, lineMark); is {
			before.text = append(append(before.text, text...), '\n')
		} else if link, is := strings.CutPrefix(line, linkMark); is {
			before.link = link
		} else if line == lastMark {
			before.text = bytes.TrimSuffix(before.text, []byte("\n"))
		} else if line == absentMark {
			before.absent = true
		}
	}
	return before, true
}

// restore puts c back at path.
func (c conf) restore(path string) error {
	switch {
	case c.absent:
		return os.Remove(path)
	case c.link != "":
		temporary := path + ".new"
		err := remove(temporary)
		if err == nil {
			err = os.Symlink(c.link, temporary)
		}
		if err == nil {
			err = os.Rename(temporary, path)
		}
		if err != nil {
			return errors.Join(err, remove(temporary))
		}
		return nil
	}
	f, err := replaceFile(path, c.text)
	if err != nil {
		return err
	}
	return f.Close()
}

// replaceFile gives path the content text, whole or not at all, in place of a
// file or a link. Where the file is a mount, as in containers, it cannot be
// replaced and is overwritten. The file is still open, and locked.
func replaceFile(path string, text []byte) (*os.File, error) {
	temporary := path + ".new"
	var f *os.File
	err := remove(temporary)
	if err == nil {
		f, err = writeFile(temporary, os.O_CREATE|os.O_EXCL, text)
	}
	if err == nil {
		if err = os.Rename(temporary, path); err == nil {
			return f, nil
		}
		err = errors.Join(err, f.Close())
	}
	undo := remove(temporary)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EROFS) {
		return writeFile(path, os.O_TRUNC, text)
	}
	return nil, errors.Join(err, undo)
}

// remove removes a file that may be there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeFile(path string, flags int, text []byte) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644) //nolint:gosec // every program of the host reads it
	if err != nil {
		return nil, err
	}
	_ = lock(f) // a file system without locks: as if its writer were dead
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// held reports whether the process that wrote the file at path lives.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false // and whoever wants to put it back hears why that cannot be
	}
	defer func() { _ = f.Close() }() // nothing was written
	return errors.Is(lock(f), errHeld)
}
