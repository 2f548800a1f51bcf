// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bufio"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// droppedBy gives what counts the datagrams that a socket's buffer had no room for.
func droppedBy(conn net.PacketConn) func() uint64 {
	inode, ok := inodeOf(conn)
	if !ok {
		return untold
	}
	return func() uint64 {
		for _, table := range []string{"/proc/self/net/udp", "/proc/self/net/udp6"} {
			if n, ok := droppedIn(table, inode); ok {
				return n
			}
		}
		return untold()
	}
}

// inodeOf gives the number by which the system lists a socket.
func inodeOf(conn net.PacketConn) (inode string, ok bool) {
	able, ok := conn.(syscall.Conn)
	if !ok {
		return "", false
	}
	raw, err := able.SyscallConn()
	if err != nil {
		return "", false
	}
	var stat syscall.Stat_t
	told := raw.Control(func(fd uintptr) { err = syscall.Fstat(int(fd), &stat) })
	return strconv.FormatUint(stat.Ino, 10), told == nil && err == nil
}

// droppedIn finds a socket in a table of the system: its inode stands in the tenth
// column, what it dropped in the last.
func droppedIn(table, inode string) (n uint64, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 13 || words[9] != inode {
			continue
		}
		n, err := strconv.ParseUint(words[len(words)-1], 10, 64)
		return n, err == nil
	}
	return 0, false
}
