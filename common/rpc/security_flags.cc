#include "common/rpc/security_flags.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "common/security/data_plane.h"
#include "common/status/status_macros.h"

namespace tandem::rpc {
namespace {

constexpr char kCert[] = "TANDEM_TLS_CERT";
constexpr char kKey[] = "TANDEM_TLS_KEY";
constexpr char kCa[] = "TANDEM_TLS_CA";
constexpr char kTokens[] = "TANDEM_TOKENS";
constexpr char kTokenFile[] = "TANDEM_TOKEN_FILE";
constexpr char kToken[] = "TANDEM_TOKEN";
constexpr char kInsecurePlaintext[] = "TANDEM_INSECURE_PLAINTEXT";
constexpr char kDataPlaneEncryption[] = "TANDEM_DATA_PLANE_ENCRYPTION";
constexpr char kAllowPlaintextNccl[] = "TANDEM_ALLOW_PLAINTEXT_NCCL";

// Children may have another working directory.
void HandDown(const char* name, std::string& path) {
  if (path.empty()) return;
  path = std::filesystem::absolute(path).string();
  setenv(name, path.c_str(), /*overwrite=*/1);
}

}  // namespace

void AddSecurityFlags(CLI::App& app, SecurityOptions& options) {
  const char* group = "Security";
  app.add_option("--tls-cert", options.tls_cert,
                 "PEM file with this process's certificate; {role} stands for its role")
      ->envname(kCert)
      ->group(group);
  app.add_option("--tls-key", options.tls_key, "PEM file with the certificate's key")
      ->envname(kKey)
      ->group(group);
  app.add_option("--tls-ca", options.tls_ca,
                 "PEM file with the authority that signs the peers' certificates")
      ->envname(kCa)
      ->group(group);
  app.add_option("--tokens", options.tokens,
                 "File of lines ROLE TOKEN: callers admitted without a certificate")
      ->envname(kTokens)
      ->group(group);
  app.add_option("--token-file", options.token_file,
                 "File with the token that this process sends; or TANDEM_TOKEN")
      ->envname(kTokenFile)
      ->group(group);
  app.add_flag("--insecure-plaintext", options.insecure_plaintext,
               "Allows listening without TLS on an address that other hosts reach")
      ->envname(kInsecurePlaintext)
      ->group(group);
  app.add_option(
         "--data-plane-encryption", options.data_plane_encryption,
         "Encryption of links that carry tensors. auto: TLS between hosts, if this process has a "
         "certificate; always: within a host too; never. Must be the same on all processes")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->envname(kDataPlaneEncryption)
      ->group(group);
  app.add_flag("--allow-plaintext-nccl", options.allow_plaintext_nccl,
               "Allows NCCL, which does not encrypt, between hosts whose other links are encrypted")
      ->envname(kAllowPlaintextNccl)
      ->group(group);
  app.add_option("--max-calls-per-client", options.max_calls_per_client,
                 "Maximum calls in flight per client, or per connection if clients are not "
                 "authenticated")
      ->check(CLI::PositiveNumber)
      ->group(group);
}

absl::Status ApplySecurityFlags(SecurityOptions options, security::Role own_role) {
  HandDown(kCert, options.tls_cert);
  HandDown(kKey, options.tls_key);
  HandDown(kCa, options.tls_ca);
  HandDown(kTokens, options.tokens);
  HandDown(kTokenFile, options.token_file);
  if (options.insecure_plaintext) setenv(kInsecurePlaintext, "1", /*overwrite=*/1);
  if (const char* token = std::getenv(kToken); token != nullptr && options.token_file.empty()) {
    options.token = token;
  }
  setenv(kDataPlaneEncryption, options.data_plane_encryption.c_str(), /*overwrite=*/1);
  if (options.allow_plaintext_nccl) setenv(kAllowPlaintextNccl, "1", /*overwrite=*/1);
  ASSIGN_OR_RETURN(auto security, TransportSecurity::Create(std::move(options), own_role));
  const SecurityOptions& resolved = security->options();
  ASSIGN_OR_RETURN(auto data_plane,
                   security::ResolveDataPlane(resolved.data_plane_encryption, security->has_tls(),
                                              resolved.allow_plaintext_nccl));
  security::SetDataPlaneOfProcess(std::move(data_plane));
  TransportSecurity::SetOfProcess(std::move(security));
  return absl::OkStatus();
}

}  // namespace tandem::rpc
