// TlsSession: TLS 1.3 over a connected socket between two ranks that share a secret.
//
// Both sides prove that they know a key (an external pre-shared key, RFC 8446 4.2.11) and agree on
// a fresh one by Diffie-Hellman (forward secrecy): an attacker who records a link and learns the
// secret later can read nothing. A certificate would prove that a peer is some trainer of the
// installation; the group's secret proves that it is a rank of this group, and every rank already
// has it. Gloo's own TLS does not fit: LibTorch 2.11 loads it from libssl.so.1.1 or from a
// development package's libssl.so, it checks only certificates, and its sockets stay open to
// anyone's handshake.
//
// Kernel TLS is not used: many hosts lack it, and OpenSSL's costs the same cycles. AES-128-GCM is
// preferred; ChaCha20-Poly1305 serves processors without AES instructions.
//
// One thread at a time. Only the handshake blocks.
#ifndef TANDEM_COMMON_COMM_TLS_SESSION_H_
#define TANDEM_COMMON_COMM_TLS_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/comm/store_connection.h"
#include "common/host/file_descriptor.h"

struct bio_st;
struct ssl_st;

namespace tandem::comm {

// Result of a read or write. Zero bytes and no error: nothing can move now.
struct Moved {
  int64_t bytes = 0;
  // UNAVAILABLE: the peer is gone. DATA_LOSS: the received bytes are not those that the peer sent.
  absl::Status error;
};

class TlsSession {
 public:
  struct Options {
    bool is_server = false;  // true on exactly one side
    std::string key;         // the same 32 bytes on both sides
    std::string what;        // prefix of error messages: "TLS with rank 1"
    // Bytes per direction before a key change. AES-GCM's limit is 2^24.5 records of 16 KiB (RFC
    // 8446 5.5), about 350 GiB, which a large model reaches in a few updates.
    int64_t rekey_bytes = int64_t{64} << 30;
  };

  // Returns when both sides have proven the key. `socket` must be non-blocking and outlive the
  // session. Errors: PERMISSION_DENIED if the peer does not know the key; DEADLINE_EXCEEDED,
  // CANCELLED, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<TlsSession>> Handshake(const host::FileDescriptor& socket,
                                                               Options options, absl::Time deadline,
                                                               const Cancelled& cancelled);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Encrypts some of the bytes and writes what the socket accepts; the session buffers the rest
  // until Flush().
  Moved Write(const void* data, int64_t size);
  // Writes buffered bytes to the socket; true if none are left.
  bool Flush(absl::Status& error);
  // Decrypts what has arrived, up to `size` bytes.
  Moved Read(void* data, int64_t size);

  int num_key_changes() const { return num_key_changes_; }
  // "TLS_AES_128_GCM_SHA256"
  std::string cipher() const;

 private:
  friend struct TlsCallbacks;
  struct FreeSsl {
    void operator()(ssl_st* ssl) const;
  };

  TlsSession(int fd, Options options) : fd_(fd), options_(std::move(options)) {}
  absl::Status Shake(const host::FileDescriptor& socket, absl::Time deadline,
                     const Cancelled& cancelled);
  // Error of the last OpenSSL call, which returned `result`; OK if it would only block.
  absl::Status ErrorOf(int result);

  const int fd_;
  const Options options_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_;
  // Encrypted records; the socket has not accepted bytes [sent_, size) yet. One system call sends
  // several records.
  std::string held_;
  size_t sent_ = 0;
  int64_t under_key_ = 0;  // bytes written since the last key change
  int num_key_changes_ = 0;
  int socket_error_ = 0;  // errno of the last read or write that failed
  bool ended_ = false;    // the peer has closed the connection
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_TLS_SESSION_H_
