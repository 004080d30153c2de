#include "common/rpc/trace_interceptor.h"

#include <string>
#include <utility>

namespace tandem::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class Injector final : public grpc::experimental::Interceptor {
 public:
  explicit Injector(std::string header) : header_(std::move(header)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (!header_.empty() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(telemetry::kTraceparent, header_);
    }
    methods->Proceed();
  }

 private:
  const std::string header_;
};

class InjectorFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  // Called by the thread that begins the call.
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new Injector(telemetry::ToTraceparent(telemetry::CurrentTraceContext()));
  }
};

}  // namespace

std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
TraceInterceptors() {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> out;
  out.push_back(std::make_unique<InjectorFactory>());
  return out;
}

telemetry::TraceContext TraceContextIn(
    const std::multimap<grpc::string_ref, grpc::string_ref>* metadata) {
  if (metadata == nullptr) return {};
  const auto found = metadata->find(telemetry::kTraceparent);
  if (found == metadata->end()) return {};
  return telemetry::ParseTraceparent({found->second.data(), found->second.size()});
}

}  // namespace tandem::rpc
