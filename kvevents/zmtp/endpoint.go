package zmtp

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// endpoint is a parsed endpoint: what net.Dial and net.Listen take.
type endpoint struct {
	text     string // as given
	network  string // "tcp", "tcp4" or "unix"
	address  string
	wildcard bool // tcp, every interface
}

const (
	endpointForms = `accepted are "tcp://host:port" and "ipc://path"`
	maxIPCPath    = 107 // sun_path of Linux has 108 bytes, the last is zero
)

// CheckEndpoint returns the *EndpointError that Dial would return for an
// endpoint, or Bind when bind is set; nil when there is none. It is for checking
// a configuration; nothing is resolved or opened.
func CheckEndpoint(endpoint string, bind bool) error {
	_, err := parseEndpoint(endpoint, bind)
	return err
}

// parseEndpoint reads the endpoint syntax of libzmq, for Bind or for Dial.
func parseEndpoint(text string, bind bool) (endpoint, error) {
	ep := endpoint{text: text}
	bad := func(reason string) (endpoint, error) {
		return endpoint{}, &EndpointError{Endpoint: text, Reason: reason}
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return bad("has no scheme; " + endpointForms)
	}
	switch scheme {
	case "tcp":
	case "ipc":
		return parseIPC(ep, rest)
	default:
		return bad("scheme " + strconv.Quote(scheme) + " is not supported; " + endpointForms)
	}

	if strings.Contains(rest, ";") {
		return bad("a source address is not supported; " + endpointForms)
	}
	// libzmq takes the last colon, so that IPv6 works with and without brackets.
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return bad(`has no port; accepted is "tcp://host:port"`)
	}
	host, port := rest[:colon], rest[colon+1:]
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if bracketed {
		host = host[1 : len(host)-1]
	}
	if strings.ContainsAny(host, "[]/ ") {
		return bad("host " + strconv.Quote(host) + " is not a name or an address")
	}

	if bind && port == "*" {
		port = "0"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil && bind:
		return bad("port " + strconv.Quote(port) + " is not a number from 0 to 65535, nor *")
	case err != nil, n == 0 && !bind:
		return bad("port " + strconv.Quote(port) + " is not a number from 1 to 65535")
	}
	port = strconv.FormatUint(n, 10)

	ep.network = "tcp"
	switch {
	case host == "":
		return bad("has no host; every interface is *, for Bind")
	case host == "*" && !bind:
		return bad("* is not a host to dial; it is for Bind")
	case host == "*":
		ep.wildcard, host = true, ""
	default:
		if ip, err := netip.ParseAddr(host); err == nil {
			ep.wildcard = ip.IsUnspecified()
			if ip.Is4() {
				ep.network = "tcp4"
			}
		} else if bracketed || strings.Contains(host, ":") {
			return bad("host " + strconv.Quote(host) + " is not an IPv6 address")
		} else if bind {
			if ip, ok := interfaceAddress(host); ok {
				host = ip
			}
		}
	}
	ep.address = net.JoinHostPort(host, port)
	return ep, nil
}

func parseIPC(ep endpoint, path string) (endpoint, error) {
	reason := ""
	switch {
	case path == "" || path == "@":
		reason = `has no path; accepted is "ipc:///path" or "ipc://@name"`
	case path == "*":
		reason = `a made-up path is not supported; accepted is "ipc:///path" or "ipc://@name"`
	case len(path) > maxIPCPath:
		reason = "path has " + strconv.Itoa(len(path)) + " bytes; at most " + strconv.Itoa(maxIPCPath) + " are accepted"
	case strings.ContainsRune(path, 0):
		reason = "path contains a zero byte"
	default:
		ep.network, ep.address = "unix", path
		return ep, nil
	}
	return endpoint{}, &EndpointError{Endpoint: ep.text, Reason: reason}
}

// interfaceAddress returns the first address of a network interface, as libzmq
// does for "tcp://eth0:5557".
func interfaceAddress(name string) (string, bool) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return "", false
	}
	addrs, err := iface.Addrs()
	if err != nil {
		return "", false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String(), true
		}
	}
	return "", false
}

// bound returns the endpoint that reaches a listener. A wildcard is given as
// 0.0.0.0, as libzmq does, which on the same host can be dialed.
func (ep endpoint) bound(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return ep.text
	}
	port := strconv.Itoa(t.Port)
	if ep.wildcard && !strings.HasPrefix(ep.address, "[") {
		return "tcp://0.0.0.0:" + port
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ep.text
	}
	return "tcp://" + net.JoinHostPort(host, port)
}
