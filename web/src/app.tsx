import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Route, Switch } from "wouter";
import { onSignedOut } from "./api/client";
import { keys, useAuth, useStream } from "./api/data";
import type { User } from "./api/types";
import { Frame } from "./frame/Frame";
import { AddGroupPage } from "./pages/groups/AddGroupPage";
import { GroupPage } from "./pages/groups/GroupPage";
import { GroupsPage } from "./pages/groups/GroupsPage";
import { SignInPage } from "./pages/login/SignInPage";
import { NotFoundPage } from "./pages/NotFoundPage";
import { OperationPage } from "./pages/operations/OperationPage";
import { OperationsPage } from "./pages/operations/OperationsPage";
import { OverviewPage } from "./pages/overview/OverviewPage";
import { ProxiesPage } from "./pages/proxies/ProxiesPage";
import { ProxyPage } from "./pages/proxies/ProxyPage";
import { GoalPage } from "./pages/rebalance/GoalPage";
import { PlanPage } from "./pages/rebalance/PlanPage";
import { SlotsPage } from "./pages/slots/SlotsPage";
import { GroupColors } from "./parts/groups";
import { Failure, Loading } from "./parts/Region";
import { PersonProvider } from "./parts/role";

export function App() {
  const auth = useAuth();
  const client = useQueryClient();
  useEffect(() => onSignedOut(() => void client.invalidateQueries({ queryKey: keys.auth })), [client]);
  if (auth.error && !auth.data) return <Failure error={auth.error} retry={() => void auth.refetch()} />;
  if (!auth.data) return <Loading height={200} />;
  if (!auth.data.user) return <SignInPage state={auth.data} />;
  return <Console user={auth.data.user} />;
}

function Console({ user }: { user: User }) {
  useStream();
  return (
    <PersonProvider value={user}>
      <GroupColors>
        <Frame>
          <Switch>
            <Route path="/" component={OverviewPage} />
            <Route path="/slots" component={SlotsPage} />
            <Route path="/groups" component={GroupsPage} />
            <Route path="/groups/new" component={AddGroupPage} />
            <Route path="/groups/:id">{({ id }) => <GroupPage id={decodeURIComponent(id)} />}</Route>
            <Route path="/proxies" component={ProxiesPage} />
            <Route path="/proxies/:id">{({ id }) => <ProxyPage id={decodeURIComponent(id)} />}</Route>
            <Route path="/operations" component={OperationsPage} />
            <Route path="/operations/:id">{({ id }) => <OperationPage id={decodeURIComponent(id)} />}</Route>
            <Route path="/rebalance" component={GoalPage} />
            <Route path="/rebalance/:id">{({ id }) => <PlanPage id={decodeURIComponent(id)} />}</Route>
            <Route component={NotFoundPage} />
          </Switch>
        </Frame>
      </GroupColors>
    </PersonProvider>
  );
}
