#include "common/rpc/token_interceptor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/caller_check.h"

namespace tandem::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class Shower final : public grpc::experimental::Interceptor {
 public:
  explicit Shower(std::string token) : token_(std::move(token)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (!token_.empty() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(kAuthorization, absl::StrCat("Bearer ", token_));
    }
    methods->Proceed();
  }

 private:
  const std::string token_;
};

class TokenFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenFactory(std::shared_ptr<const TransportSecurity> security)
      : security_(std::move(security)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new Shower(security_->Token());
  }

 private:
  const std::shared_ptr<const TransportSecurity> security_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> TokenInterceptor(
    std::shared_ptr<const TransportSecurity> security) {
  return std::make_unique<TokenFactory>(std::move(security));
}

}  // namespace tandem::rpc
