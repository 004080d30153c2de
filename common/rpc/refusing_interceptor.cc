#include "common/rpc/refusing_interceptor.h"

#include <string>
#include <utility>

namespace tandem::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class Refuser final : public grpc::experimental::Interceptor {
 public:
  explicit Refuser(grpc::Status why) : why_(std::move(why)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    const auto is = [&](InterceptionHookPoints point) {
      return methods->QueryInterceptionHookPoint(point);
    };
    bool hijack = false;
    if (is(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) hijack = true;
    if (is(InterceptionHookPoints::PRE_RECV_MESSAGE)) methods->FailHijackedRecvMessage();
    if (is(InterceptionHookPoints::PRE_SEND_MESSAGE) && !hijack) methods->FailHijackedSendMessage();
    if (is(InterceptionHookPoints::PRE_RECV_STATUS)) *methods->GetRecvStatus() = why_;
    if (hijack) {
      methods->Hijack();
    } else {
      methods->Proceed();
    }
  }

 private:
  const grpc::Status why_;
};

class RefusingFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit RefusingFactory(grpc::Status why) : why_(std::move(why)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new Refuser(why_);
  }

 private:
  const grpc::Status why_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> RefusingInterceptor(
    const absl::Status& why) {
  return std::make_unique<RefusingFactory>(
      grpc::Status(static_cast<grpc::StatusCode>(why.code()), std::string(why.message())));
}

}  // namespace tandem::rpc
