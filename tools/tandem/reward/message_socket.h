// MessageSocket: the driver's end of the socket to a reward worker. A message is its length in four
// bytes, little-endian, and that many bytes.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_MESSAGE_SOCKET_H_
#define TANDEM_TOOLS_TANDEM_REWARD_MESSAGE_SOCKET_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::reward {

// Used by one thread at a time.
class MessageSocket {
 public:
  // Largest message in either direction.
  static constexpr size_t kMaxMessageBytes = 256 << 20;

  // Takes ownership of a connected stream socket.
  explicit MessageSocket(int fd) : fd_(fd) {}
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // UNAVAILABLE if the peer has closed the socket, DEADLINE_EXCEEDED after `deadline`. After an
  // error the socket may hold a part of a message, so close it. INVALID_ARGUMENT for a message that
  // is too large, of which nothing was sent.
  absl::Status Send(absl::string_view message, absl::Time deadline);
  // Fails like Send(); DATA_LOSS for a length beyond kMaxMessageBytes.
  absl::StatusOr<std::string> Receive(absl::Time deadline);

 private:
  absl::Status Write(absl::string_view bytes, absl::Time deadline);
  absl::Status Read(char* bytes, size_t size, absl::Time deadline);
  absl::Status Await(short events, absl::Time deadline) const;  // NOLINT: poll()'s type

  const int fd_;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_MESSAGE_SOCKET_H_
