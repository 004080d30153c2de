// ClientSocket: whether the client of a request is still there.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_CLIENT_SOCKET_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_CLIENT_SOCKET_H_

#include <string>

namespace tandem::rollout::openai {

// civetweb keeps a connection's socket to itself, and one who waits for tokens writes nothing that
// could fail. So the socket is looked up, once, among the process's descriptors by its two ends.
// Used by one thread, while the connection is open.
class ClientSocket {
 public:
  ClientSocket(std::string remote_address, int remote_port, int server_port)
      : remote_address_(std::move(remote_address)),
        remote_port_(remote_port),
        server_port_(server_port) {}

  // The client has closed its end. Costs a system call; the first time one for each descriptor.
  bool Gone();

 private:
  int Find() const;  // -1 where there is none

  const std::string remote_address_;
  const int remote_port_;
  const int server_port_;
  bool looked_up_ = false;
  int fd_ = -1;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_CLIENT_SOCKET_H_
