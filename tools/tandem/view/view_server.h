// ViewServer: serves the rollout viewer's page over HTTP, and the page's requests (run_reader.h).
//
//   ASSIGN_OR_RETURN(auto server, ViewServer::Start("127.0.0.1:8700", *reader, *inspector));
//   std::puts(server->url().c_str());
//
//   GET api/inspect?step=N&sample=K             the model's view of a sample (inspector.h)
//   GET api/attention?step=N&sample=K&layer=L   bytes [num_heads][T][T]
#ifndef TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_
#define TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/server.h"
#include "tools/tandem/view/inspector.h"
#include "tools/tandem/view/run_reader.h"

namespace tandem::view {

// Read-only. No path of a request reaches the file system. Separate threads run the inspector, so
// the page stays responsive.
class ViewServer final : private http::Handler {
 public:
  // `listen` is HOST:PORT; port 0 picks a free one. UNAVAILABLE if it cannot be bound. Reader and
  // inspector must outlive the server.
  static absl::StatusOr<std::unique_ptr<ViewServer>> Start(const std::string& listen,
                                                           RunReader& reader, Inspector& inspector);
  ~ViewServer() override;
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  const std::string& url() const { return url_; }
  int port() const { return server_->port(); }

 private:
  ViewServer(RunReader& reader, Inspector& inspector) : reader_(reader), inspector_(inspector) {}
  http::Admission Admit(const http::Request& head) override;
  void Serve(http::Exchange& exchange) override;
  http::Response Refuse(const http::Error& error) const override;

  RunReader& reader_;
  Inspector& inspector_;
  std::string url_;
  std::unique_ptr<http::Server> server_;  // destroyed first
};

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_
