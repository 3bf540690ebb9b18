// What a dashboard's JSON may say: Grafana's own types, with each kind of panel held to its own options.
import type { DataQuery, Dashboard, FieldConfig, FieldConfigSource, GraphFieldConfig, HideSeriesConfig, Panel } from "@grafana/schema";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as timeline from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen";
import type * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// JSON holds the value of an enum, never its name.
type Plain<T> = T extends string ? `${T}`
  : T extends (infer Item)[] ? Plain<Item>[]
  : T extends object ? { [Key in keyof T]: Plain<T[Key]> }
  : T;

interface PrometheusQuery extends Pick<DataQuery, "refId" | "hide"> {
  expr: string;
  legendFormat: string;
  format?: "time_series" | "table" | "heatmap";
  instant?: boolean;
}

type Kind<Type extends string, Options, Custom> =
  Omit<Plain<Panel>, "type" | "options" | "fieldConfig" | "targets"> & {
    type: Type;
    options: Plain<Options>;
    fieldConfig: {
      defaults: Omit<Plain<FieldConfig>, "custom"> & { custom?: Plain<Custom> };
      overrides: Plain<FieldConfigSource["overrides"]>;
    };
    targets: PrometheusQuery[];
  };

export type CheckedDashboard = Omit<Plain<Dashboard>, "panels"> & {
  panels: (
    | Kind<"stat", stat.Options, { hideFrom?: HideSeriesConfig }>
    | Kind<"timeseries", timeseries.Options, GraphFieldConfig>
    | Kind<"state-timeline", timeline.Options, timeline.FieldConfig>
  )[];
};
