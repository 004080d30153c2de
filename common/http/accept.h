// Connections as they are accepted, closed in child processes.
#ifndef TANDEM_COMMON_HTTP_ACCEPT_H_
#define TANDEM_COMMON_HTTP_ACCEPT_H_

#include <string>
#include <vector>

namespace tandem::http {

// Who is at the other end, as far as one client can be told from another: an IPv4 address, or the
// first 64 bits of an IPv6 address.
struct Accepted {
  int fd = -1;  // not blocking; -1: errno says why
  std::string client;
};
Accepted Accept(int listener);

// Descriptors kept for when the process has no other left.
class SpareDescriptors {
 public:
  explicit SpareDescriptors(size_t count) : count_(count) { Refill(); }
  ~SpareDescriptors();
  SpareDescriptors(const SpareDescriptors&) = delete;
  SpareDescriptors& operator=(const SpareDescriptors&) = delete;

  // Frees one; false where there is none left.
  bool Release();
  // Takes back what was freed, as far as the system lets it.
  void Refill();

 private:
  const size_t count_;
  std::vector<int> fds_;
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_ACCEPT_H_
