package ask

import (
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// conn is a connection whose system calls the scheduler is not told of. They never
// wait, since the socket is non-blocking: where there is nothing to read, or no room
// to write, the goroutine waits as for any other connection.
type conn struct {
	net.Conn
	raw syscall.RawConn
}

// quiet returns a connection that costs less, or c where it is no socket.
func quiet(c net.Conn) net.Conn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	return &conn{Conn: c, raw: raw}
}

// Read implements [net.Conn]. Before it reads it lets the goroutines run that have
// what was read before: frames are counted, and get their times, before more come.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	runtime.Gosched()
	var n int
	var no syscall.Errno
	err := c.raw.Read(func(fd uintptr) bool {
		n, no = call(syscall.SYS_READ, fd, p)
		return no != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case no != 0:
		return 0, os.NewSyscallError("read", no)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	done := 0
	var no syscall.Errno
	err := c.raw.Write(func(fd uintptr) bool {
		for no = 0; done < len(p) && no == 0; {
			var n int
			n, no = call(syscall.SYS_WRITE, fd, p[done:])
			done += n
		}
		return no != syscall.EAGAIN
	})
	if err == nil && no != 0 {
		err = os.NewSyscallError("write", no)
	}
	return done, err
}

// call reads into p, or writes what is in it, which is not empty. It begins again
// when a signal came first.
func call(trap, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, no := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch no {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, no
		}
	}
}
