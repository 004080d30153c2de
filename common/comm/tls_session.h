// TlsSession: TLS 1.3 over a connected socket between two ranks that share a secret.
//
// The two prove to each other that they know a key (an external pre-shared key, RFC 8446 4.2.11)
// and agree on a fresh one by Diffie-Hellman: who records a link and learns the secret later reads
// nothing. Certificates would say that a peer is some trainer of the installation; the group's
// secret says that it is a rank of this group, and every rank has it already. Gloo's own TLS was
// looked at and left: LibTorch 2.11 loads it from libssl.so.1.1 or from a development package's
// libssl.so, it checks certificates alone, and its sockets would stay open to everybody's
// handshake.
//
// The kernel's TLS is not used: it is missing on many hosts, and OpenSSL's costs the same cycles.
// AES-128-GCM comes first, ChaCha20-Poly1305 serves processors without AES.
//
// One thread at a time. Neither reads nor writes block, but for the handshake.
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
#include "common/status/file_descriptor.h"

struct bio_st;
struct ssl_st;

namespace tandem::comm {

// What a call moved. Nothing and no error: nothing can move now.
struct Moved {
  int64_t bytes = 0;
  // UNAVAILABLE: the peer is gone. DATA_LOSS: what came is not what the peer sent.
  absl::Status error;
};

class TlsSession {
 public:
  struct Options {
    bool is_server = false;  // one of the two is
    std::string key;         // the same 32 bytes on both
    std::string what;        // begins errors: "TLS with rank 1"
    // Bytes under one key, of each direction. AES-GCM's limit is 2^24.5 records of 16 KiB (RFC 8446
    // 5.5), some 350 GiB, which a large model reaches in a few updates.
    int64_t rekey_bytes = int64_t{64} << 30;
  };

  // Returns when both have proven the key. `socket` does not block, and outlives the session.
  // Errors: PERMISSION_DENIED where the peer does not know the key; DEADLINE_EXCEEDED, CANCELLED,
  // UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<TlsSession>> Handshake(const FileDescriptor& socket,
                                                               Options options, absl::Time deadline,
                                                               const Cancelled& cancelled);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Encrypts some of the bytes, and hands the socket what it takes. What it does not take is held
  // here until Flush().
  Moved Write(const void* data, int64_t size);
  // Whether nothing is held; tries to hand it over first.
  bool Flush(absl::Status& error);
  // Decrypts what has come, up to `size` bytes.
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
  absl::Status Shake(const FileDescriptor& socket, absl::Time deadline, const Cancelled& cancelled);
  // What the last call of OpenSSL failed with, which returned `result`; OK where it only waits.
  absl::Status ErrorOf(int result);

  const int fd_;
  const Options options_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_;
  // Records that the socket has not taken: [sent_, size) of them. Several records leave in one
  // system call.
  std::string held_;
  size_t sent_ = 0;
  int64_t under_key_ = 0;  // bytes written since the last change of keys
  int num_key_changes_ = 0;
  int socket_error_ = 0;  // errno of the last read or write that failed
  bool ended_ = false;    // the peer has closed the connection
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_TLS_SESSION_H_
