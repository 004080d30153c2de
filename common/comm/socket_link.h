// SocketLink: a connected socket to a rank, in plaintext or under TLS. Nothing here blocks.
#ifndef TANDEM_COMMON_COMM_SOCKET_LINK_H_
#define TANDEM_COMMON_COMM_SOCKET_LINK_H_

#include <sys/uio.h>

#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "common/comm/tls_session.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// Move-only; one thread at a time.
class SocketLink {
 public:
  SocketLink() = default;  // not open
  explicit SocketLink(host::FileDescriptor socket) : socket_(std::move(socket)) {}

  // Sends and receives through `tls`, a session over socket(), from now on.
  void Encrypt(std::unique_ptr<TlsSession> tls) { tls_ = std::move(tls); }
  bool is_encrypted() const { return tls_ != nullptr; }

  const host::FileDescriptor& socket() const { return socket_; }
  bool is_open() const { return socket_.is_open(); }

  // Accepts some of the bytes, starting with the first part. They may stay buffered until Flush()
  // returns true.
  Moved Send(absl::Span<const iovec> parts);
  // Tries to pass buffered bytes to the socket; true if none are left.
  bool Flush(absl::Status& error) { return tls_ == nullptr || tls_->Flush(error); }
  Moved Receive(void* data, int64_t size);

 private:
  host::FileDescriptor socket_;
  std::unique_ptr<TlsSession> tls_;  // null: plaintext. After the socket, so destroyed first
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SOCKET_LINK_H_
