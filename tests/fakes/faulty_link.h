// What can go wrong between a replica that reads weights and the one that it reads from: a proxy
// that cuts connections, and a relay that changes, holds or ends what passes.
#ifndef TANDEM_TESTS_FAKES_FAULTY_LINK_H_
#define TANDEM_TESTS_FAKES_FAULTY_LINK_H_

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"

namespace tandem::testing {

// Passes bytes on to 127.0.0.1:PORT, one connection at a time; closes each of the first `cuts`
// connections once `cut_after` bytes have come back over it.
class CuttingProxy {
 public:
  CuttingProxy(const std::string& to, int64_t cut_after, int cuts)
      : to_port_(std::atoi(to.substr(to.rfind(':') + 1).c_str())),
        cut_after_(cut_after),
        cuts_(cuts) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 8) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      std::abort();
    }
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    if (pipe(stop_.data()) != 0) std::abort();
    thread_ = std::thread([this] { Run(); });
  }
  ~CuttingProxy() {
    close(stop_[1]);
    thread_.join();
    close(stop_[0]);
    close(listener_);
  }
  const std::string& address() const { return address_; }
  int connections() const { return connections_; }
  int64_t returned_bytes() const { return returned_bytes_; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  // False where it is to stop.
  bool Wait(int one, int other, bool& one_ready, bool& other_ready) {
    std::array<pollfd, 3> fds = {{{stop_[0], POLLIN, 0}, {one, POLLIN, 0}, {other, POLLIN, 0}}};
    while (poll(fds.data(), other < 0 ? 2 : 3, -1) < 0) {
    }
    one_ready = fds[1].revents != 0;
    other_ready = other >= 0 && fds[2].revents != 0;
    return fds[0].revents == 0;
  }

  // False at the end of the stream.
  static bool Pass(int from, int to, int64_t& count) {
    std::array<char, 4096> bytes;
    const ssize_t size = recv(from, bytes.data(), bytes.size(), 0);
    if (size <= 0) return false;
    for (ssize_t sent = 0; sent < size;) {
      const ssize_t n = send(to, bytes.data() + sent, size - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += n;
    }
    count += size;
    return true;
  }

  void Run() {
    bool ready = false, unused = false;
    while (Wait(listener_, -1, ready, unused)) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) continue;
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = Loopback(to_port_);
      bool open =
          connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      const bool cut = connections_++ < cuts_;
      int64_t returned = 0, sent = 0;
      bool go_on = true;
      while (open && go_on && !(cut && returned >= cut_after_)) {
        bool from_client = false, from_server = false;
        go_on = Wait(client, server, from_client, from_server);
        if (from_client) open = Pass(client, server, sent);
        if (open && from_server) open = Pass(server, client, returned);
      }
      returned_bytes_ += returned;
      close(client);
      close(server);
      if (!go_on) return;
    }
  }

  const int to_port_;
  const int64_t cut_after_;
  const int cuts_;
  int listener_ = -1;
  std::array<int, 2> stop_{};  // a pipe, closed to stop
  std::string address_;
  std::atomic<int> connections_{0};
  std::atomic<int64_t> returned_bytes_{0};
  std::thread thread_;
};

// Serves ReadWeights with what another rollout answers.
class Relay final : public rollout::v1::WeightService::Service {
 public:
  // `on_message` sees each message before it is passed on.
  using OnMessage = std::function<void(rollout::v1::ReadWeightsResponse&)>;
  Relay(const std::string& to, OnMessage on_message)
      : stub_(rollout::v1::WeightService::NewStub(rpc::MakeChannel(to))),
        on_message_(std::move(on_message)) {
    server_ = *rpc::Server::Start({.role = "relay"}, {this});
  }
  ~Relay() override { server_.reset(); }
  const std::string& address() const { return server_->address(); }
  // Of each read.
  std::vector<int> first_buckets() const {
    absl::MutexLock lock(&mu_);
    return first_buckets_;
  }

  grpc::Status ReadWeights(grpc::ServerContext*, const rollout::v1::ReadWeightsRequest* request,
                           grpc::ServerWriter<rollout::v1::ReadWeightsResponse>* writer) override {
    {
      absl::MutexLock lock(&mu_);
      first_buckets_.push_back(request->first_bucket());
    }
    const auto context = rpc::MakeContext(absl::Seconds(60));
    const auto reader = stub_->ReadWeights(context.get(), *request);
    rollout::v1::ReadWeightsResponse message;
    while (reader->Read(&message)) {
      on_message_(message);
      if (!writer->Write(message)) context->TryCancel();
    }
    return reader->Finish();
  }

 private:
  const std::unique_ptr<rollout::v1::WeightService::Stub> stub_;
  const OnMessage on_message_;
  mutable absl::Mutex mu_;
  std::vector<int> first_buckets_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAULTY_LINK_H_
