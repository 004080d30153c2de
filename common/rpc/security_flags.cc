#include "common/rpc/security_flags.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

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
                 "PEM file with the authority that the others' certificates are of")
      ->envname(kCa)
      ->group(group);
  app.add_option("--tokens", options.tokens,
                 "File of lines ROLE TOKEN: who may call without a certificate")
      ->envname(kTokens)
      ->group(group);
  app.add_option("--token-file", options.token_file,
                 "File with the token that this process shows; or TANDEM_TOKEN")
      ->envname(kTokenFile)
      ->group(group);
  app.add_flag("--insecure-plaintext", options.insecure_plaintext,
               "Allows to listen without TLS where other hosts reach it")
      ->envname(kInsecurePlaintext)
      ->group(group);
  app.add_option(
         "--max-calls-per-client", options.max_calls_per_client,
         "Calls of one client that are under way at a time, of one connection where clients "
         "are not known; 4096 unless given")
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
  ASSIGN_OR_RETURN(auto security, TransportSecurity::Create(std::move(options), own_role));
  TransportSecurity::SetOfProcess(std::move(security));
  return absl::OkStatus();
}

}  // namespace tandem::rpc
