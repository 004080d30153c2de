// ServerCheck: a client's check of the server before each call.
#ifndef TANDEM_COMMON_RPC_SERVER_CHECK_H_
#define TANDEM_COMMON_RPC_SERVER_CHECK_H_

#include <grpcpp/security/credentials.h>

#include <functional>
#include <map>
#include <string>

namespace tandem::rpc {

// Adds the token to a call. Fails the call if the server's certificate does not have the role that
// serves the method, so that the holder of another certificate of the authority cannot pose as the
// trainer. Thread-safe.
class ServerCheck final : public grpc::MetadataCredentialsPlugin {
 public:
  // `token` returns the current token; empty if there is none.
  explicit ServerCheck(std::function<std::string()> token) : token_(std::move(token)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref service_url, grpc::string_ref method_name,
                           const grpc::AuthContext& connection,
                           std::multimap<grpc::string, grpc::string>* metadata) override;
  // Never contains the token.
  grpc::string DebugString() override { return "ServerCheck"; }

 private:
  const std::function<std::string()> token_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SERVER_CHECK_H_
