package broker

import (
	"context"
	"errors"
	"log/slog"
)

// PortNone runs an embedded server without a listener; PortRandom lets the
// system choose a port.
const (
	PortNone   = -1
	PortRandom = 0
)

// ServerConfig describes an embedded NATS server.
type ServerConfig struct {
	// DataDir holds the JetStream files. Required.
	DataDir string
	// Host to listen on. Default 127.0.0.1.
	Host string
	// Port to listen on; [PortNone] and [PortRandom] are special.
	Port int
	// MaxPayload of a message, bytes. Default 1 MiB.
	MaxPayload int
	// MaxStore bounds the JetStream files, bytes. Default 1 GiB.
	MaxStore int64
	// Logger receives the server's warnings and errors. Default: discarded.
	Logger *slog.Logger
}

// Server is an embedded NATS server with JetStream on files.
type Server struct{}

// StartServer starts a server and waits until it takes connections or ctx ends.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	return nil, errors.New("start server: not available")
}

// URL is the address for clients; empty for a server without a listener.
func (s *Server) URL() string { return "" }

// Shutdown stops the server and waits until its files are closed.
func (s *Server) Shutdown() {}
