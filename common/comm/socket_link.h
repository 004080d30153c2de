// SocketLink: a connected socket to a rank, in plaintext or under TLS. Nothing here blocks.
#ifndef TANDEM_COMMON_COMM_SOCKET_LINK_H_
#define TANDEM_COMMON_COMM_SOCKET_LINK_H_

#include <sys/uio.h>

#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "common/comm/tls_session.h"
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// Move-only; one thread at a time.
class SocketLink {
 public:
  SocketLink() = default;  // not open
  explicit SocketLink(FileDescriptor socket) : socket_(std::move(socket)) {}

  // From now on what is sent and received goes through `tls`, which was made over socket().
  void Encrypt(std::unique_ptr<TlsSession> tls) { tls_ = std::move(tls); }
  bool is_encrypted() const { return tls_ != nullptr; }

  const FileDescriptor& socket() const { return socket_; }
  bool is_open() const { return socket_.is_open(); }

  // Takes some of the bytes, from the first part on. They have left only once Flush() is true.
  Moved Send(absl::Span<const iovec> parts);
  // Whether all that Send() took is in the socket's hands; tries to bring it there.
  bool Flush(absl::Status& error) { return tls_ == nullptr || tls_->Flush(error); }
  Moved Receive(void* data, int64_t size);

 private:
  FileDescriptor socket_;
  std::unique_ptr<TlsSession> tls_;  // null: plaintext. After the socket: it goes first
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SOCKET_LINK_H_
