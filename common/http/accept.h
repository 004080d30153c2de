// Accepts connections (close-on-exec) and keeps spare descriptors for when the process runs out.
#ifndef TANDEM_COMMON_HTTP_ACCEPT_H_
#define TANDEM_COMMON_HTTP_ACCEPT_H_

#include <string>
#include <vector>

namespace tandem::http {

struct Accepted {
  int fd = -1;  // non-blocking; -1: see errno
  // Identifies the client: its IPv4 address, or the first 64 bits of its IPv6 address.
  std::string client;
};
Accepted Accept(int listener);

// Descriptors held in reserve for when the process has none left.
class SpareDescriptors {
 public:
  explicit SpareDescriptors(size_t count) : count_(count) { Refill(); }
  ~SpareDescriptors();
  SpareDescriptors(const SpareDescriptors&) = delete;
  SpareDescriptors& operator=(const SpareDescriptors&) = delete;

  // Frees one; false if none is left.
  bool Release();
  // Reopens the freed ones, as many as the system allows.
  void Refill();

 private:
  const size_t count_;
  std::vector<int> fds_;
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_ACCEPT_H_
