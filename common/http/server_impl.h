// The event loop of a Server. Only the server's .cc files include it: Boost.Asio compiles slowly.
#ifndef TANDEM_COMMON_HTTP_SERVER_IMPL_H_
#define TANDEM_COMMON_HTTP_SERVER_IMPL_H_

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/http/accept.h"
#include "common/http/connection_table.h"
#include "common/http/host_policy.h"
#include "common/http/server.h"
#include "common/http/worker_pool.h"
#include "common/net/listener.h"
#include "common/status/exceptions.h"
#include "common/telemetry/log.h"

namespace tandem::http {

// All private functions except ServeOnWorker() run on the loop's thread.
class Server::Impl {
 public:
  Impl(const Limits& limits, HostPolicy policy, Handler& handler, net::Listener listener);
  ~Impl();

  bool AwaitIdle(absl::Time deadline);
  void Stop();

 private:
  using Pointer = ConnectionTable::Pointer;

  void Run();
  // Runs a step of a connection; an exception closes it.
  template <typename Step>
  void Guard(const Pointer& connection, const Step& step);

  // server_accept.cc
  void ArmAccept();
  void AcceptSome();
  bool MakeRoom();
  void Evict(const Pointer& victim);
  void Admit(Accepted accepted);
  void Close(const Pointer& connection);
  void SetDeadline(const Pointer& connection, absl::Duration after);
  void OnDeadline(const Pointer& connection);
  void SetPhase(const Pointer& connection, Phase phase);
  void CountBytes(const Pointer& connection, int64_t bytes);

  // server_request.cc
  void AwaitInput(const Pointer& connection);
  void OnInput(const Pointer& connection);
  void Process(const Pointer& connection, std::string_view bytes);
  bool AdmitHead(const Pointer& connection);
  std::optional<Error> CheckLane(const Connection& connection) const;
  void Dispatch(const Pointer& connection);
  void ServeOnWorker(Exchange& exchange) const;
  void Finish(const Pointer& connection, Exchange& exchange);
  void Refuse(const Pointer& connection, const Error& error);
  void Respond(const Pointer& connection, Response response);
  void WriteSome(const Pointer& connection);
  void Linger(const Pointer& connection);
  void Discard(const Pointer& connection);

  const Limits limits_;
  const HostPolicy policy_;
  Handler& handler_;

  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer accept_timer_;
  bool accept_armed_ = false;
  bool stopping_ = false;
  SpareDescriptors spares_;
  ConnectionTable table_;
  std::array<char, 65536> scratch_;
  std::atomic<int64_t> buffered_bytes_{0};
  int64_t num_evicted_ = 0;  // since the last log line about evictions
  absl::Time last_line_ = absl::InfinitePast();

  absl::Mutex mu_;
  int num_busy_ ABSL_GUARDED_BY(mu_) = 0;  // connections in kServing and kWriting

  WorkerPool quick_;
  WorkerPool slow_;
  std::thread thread_;  // the loop's
};

template <typename Step>
void Server::Impl::Guard(const Pointer& connection, const Step& step) {
  try {
    step();
  } catch (const std::exception& error) {
    telemetry::LogError("exception in an HTTP connection", {{"error", StatusOf(error).message()}});
    Close(connection);
  }
}

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_SERVER_IMPL_H_
