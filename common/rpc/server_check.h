// ServerCheck: what a client makes sure of before it says anything, for each call.
#ifndef TANDEM_COMMON_RPC_SERVER_CHECK_H_
#define TANDEM_COMMON_RPC_SERVER_CHECK_H_

#include <grpcpp/security/credentials.h>

#include <functional>
#include <map>
#include <string>

namespace tandem::rpc {

// Refuses a call where the server's certificate does not have the role that serves the method, so
// that whoever holds any other certificate of the authority cannot pose as the trainer; and adds
// the token. Any thread.
class ServerCheck final : public grpc::MetadataCredentialsPlugin {
 public:
  // `token` answers the token of now; empty where there is none.
  explicit ServerCheck(std::function<std::string()> token) : token_(std::move(token)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref service_url, grpc::string_ref method_name,
                           const grpc::AuthContext& connection,
                           std::multimap<grpc::string, grpc::string>* metadata) override;
  // Never the token.
  grpc::string DebugString() override { return "ServerCheck"; }

 private:
  const std::function<std::string()> token_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SERVER_CHECK_H_
