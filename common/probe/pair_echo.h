// PairEcho: a port of a rank on which it sends back what other ranks of its group send, to be timed
// by them. Who does not prove that he knows the group's secret is cut off.
#ifndef TANDEM_COMMON_PROBE_PAIR_ECHO_H_
#define TANDEM_COMMON_PROBE_PAIR_ECHO_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/security/secret.h"
#include "common/status/file_descriptor.h"

namespace tandem::probe {

// What a rank says first on a connection.
struct EchoGreeting {
  std::array<char, security::kSecretBytes> proof = {};
};

// What rank `from` shows rank `to`, whose port has drawn `nonce`.
EchoGreeting MakeEchoGreeting(const std::string& secret, const std::string& nonce, int from,
                              int to);

class PairEcho {
 public:
  // Listens on a free port of `host`, an address of this host, for the ranks of a group of `size`.
  static absl::StatusOr<std::unique_ptr<PairEcho>> Start(const std::string& host,
                                                         const std::string& secret, int rank,
                                                         int size);
  ~PairEcho();

  int port() const { return port_; }
  const std::string& nonce() const { return nonce_; }

 private:
  struct Guest {
    FileDescriptor fd;
    std::string heard;  // of the greeting
    bool known = false;
  };

  PairEcho(std::string secret, int rank, int size)
      : secret_(std::move(secret)), rank_(rank), size_(size) {}
  void Run();
  // False where the connection is to be closed.
  bool Attend(Guest& guest) const;

  const std::string secret_;
  const int rank_;
  const int size_;
  int port_ = 0;
  std::string nonce_;
  FileDescriptor listener_;
  FileDescriptor stop_;  // readable once it is to end
  std::thread thread_;
};

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_PAIR_ECHO_H_
