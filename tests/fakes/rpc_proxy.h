// RpcProxy: a gRPC server that passes every call on to another one, and lets a test do as it likes
// with the bytes of every message: change, repeat, hold or exchange them.
//
//   RpcProxy proxy(rollout.address());
//   proxy.on_request = [](const std::string& method, std::string& bytes) { ...; return 1; };
//   ... call proxy.address() ...
#ifndef TANDEM_TESTS_FAKES_RPC_PROXY_H_
#define TANDEM_TESTS_FAKES_RPC_PROXY_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/channel.h"

namespace tandem::testing {

// For calls with one request and any number of responses. Each call has a thread of its own, on
// which the functions are called; so they may block. They are set before the first call.
class RpcProxy : public grpc::CallbackGenericService {
 public:
  // `method` is "CommitUpdate". Answers how often the request is passed on, one call after another;
  // the answer of the last is passed back.
  using OnRequest = std::function<int(const std::string& method, std::string& bytes)>;
  using OnResponse = std::function<void(const std::string& method, std::string& bytes)>;
  // The call is over, there.
  using OnDone = std::function<void(const std::string& method)>;

  explicit RpcProxy(const std::string& to)
      : stub_(rpc::MakeChannel(to, {.max_message_bytes = 64 << 20, .retry = false})) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~RpcProxy() override {
    server_->Shutdown(std::chrono::system_clock::now());
    std::vector<std::thread> threads;
    {
      absl::MutexLock lock(&mu_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
    server_.reset();
  }
  const std::string& address() const { return address_; }

  OnRequest on_request;
  OnResponse on_response;
  OnDone on_done;

 private:
  class Call : public grpc::ServerGenericBidiReactor {
   public:
    Call(RpcProxy& proxy, const grpc::GenericCallbackServerContext& context)
        : proxy_(proxy), path_(context.method()), deadline_(context.deadline()) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "no request"));
      absl::MutexLock lock(&proxy_.mu_);
      proxy_.threads_.emplace_back([this] { Finish(Pass()); });
    }
    void OnWriteDone(bool ok) override {
      absl::MutexLock lock(&mu_);
      written_ = true;
      broken_ |= !ok;
    }
    void OnDone() override { delete this; }

    grpc::Status Pass() {
      const std::string method = path_.substr(path_.rfind('/') + 1);
      std::string bytes = Read(request_);
      const int times = proxy_.on_request ? proxy_.on_request(method, bytes) : 1;
      grpc::Status status;
      for (int i = 0; i < times; ++i) status = PassOnce(method, bytes, i + 1 == times);
      if (proxy_.on_done) proxy_.on_done(method);
      return status;
    }

    grpc::Status PassOnce(const std::string& method, const std::string& bytes, bool back) {
      // One that was held may be over for its caller; it arrives all the same.
      grpc::ClientContext context;
      context.set_deadline(
          std::max(deadline_, std::chrono::system_clock::now() + std::chrono::seconds(5)));
      grpc::CompletionQueue queue;
      const auto wait = [&queue] {
        void* tag = nullptr;
        bool ok = false;
        return queue.Next(&tag, &ok) && ok;
      };
      const auto call = proxy_.stub_.PrepareCall(&context, path_, &queue);
      call->StartCall(nullptr);
      wait();
      call->WriteLast(Written(bytes), grpc::WriteOptions(), nullptr);
      wait();
      grpc::ByteBuffer response;
      while (true) {
        call->Read(&response, nullptr);
        if (!wait()) break;
        if (!back) continue;
        std::string answer = Read(response);
        if (proxy_.on_response) proxy_.on_response(method, answer);
        if (!PassBack(answer)) context.TryCancel();
      }
      grpc::Status status;
      call->Finish(&status, nullptr);
      wait();
      return status;
    }

    // False where the caller is gone.
    bool PassBack(const std::string& bytes) {
      const grpc::ByteBuffer buffer = Written(bytes);
      {
        absl::MutexLock lock(&mu_);
        written_ = false;
      }
      StartWrite(&buffer);
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&written_));
      return !broken_;
    }

    static std::string Read(const grpc::ByteBuffer& buffer) {
      std::vector<grpc::Slice> slices;
      buffer.Dump(&slices).ok();
      std::string bytes;
      for (const grpc::Slice& slice : slices) {
        bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
      return bytes;
    }
    static grpc::ByteBuffer Written(const std::string& bytes) {
      const grpc::Slice slice(bytes);
      return grpc::ByteBuffer(&slice, 1);
    }

   private:
    RpcProxy& proxy_;
    const std::string path_;
    const std::chrono::system_clock::time_point deadline_;
    grpc::ByteBuffer request_;
    absl::Mutex mu_;
    bool written_ ABSL_GUARDED_BY(mu_) = false;
    bool broken_ ABSL_GUARDED_BY(mu_) = false;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Call(*this, *context);
  }

  grpc::GenericStub stub_;
  std::string address_;
  absl::Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_RPC_PROXY_H_
