// PairEcho: a rank's echo port, which returns what other ranks of its group send, for them to time.
// It disconnects peers that do not prove that they know the group's secret.
#ifndef TANDEM_COMMON_PROBE_PAIR_ECHO_H_
#define TANDEM_COMMON_PROBE_PAIR_ECHO_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"
#include "common/security/secret.h"

namespace tandem::probe {

// A rank's first message on a connection.
struct EchoGreeting {
  std::array<char, security::kSecretBytes> proof = {};
};

// The greeting that rank `from` sends to rank `to`, whose port drew `nonce`.
EchoGreeting MakeEchoGreeting(const std::string& secret, const std::string& nonce, int from,
                              int to);

class PairEcho {
 public:
  // Listens on a free port of `host`, an address of this host, for a group of `size` ranks.
  static absl::StatusOr<std::unique_ptr<PairEcho>> Start(const std::string& host,
                                                         const std::string& secret, int rank,
                                                         int size);
  ~PairEcho();

  int port() const { return port_; }
  const std::string& nonce() const { return nonce_; }

 private:
  struct Guest {
    host::FileDescriptor fd;
    std::string heard;  // bytes of the greeting received so far
    bool known = false;
  };

  PairEcho(std::string secret, int rank, int size)
      : secret_(std::move(secret)), rank_(rank), size_(size) {}
  void Run();
  // Returns false if the connection should be closed.
  bool Attend(Guest& guest) const;

  const std::string secret_;
  const int rank_;
  const int size_;
  int port_ = 0;
  std::string nonce_;
  host::FileDescriptor listener_;
  host::FileDescriptor stop_;  // readable once the thread should stop
  std::thread thread_;
};

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_PAIR_ECHO_H_
