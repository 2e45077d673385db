import java.util.ArrayDeque;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.Locale;
import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Lists what a plan or an expression consists of, a line for each kind: "class NAME", "function NAME", "table NAME", "option NAME",
 * "clause NAME" of one that is read as the name of a table.
 *
 * Options of functions tell what Spark loads and opens. They are known before analysis only where their names are literals of a map(...).
 *
 * It looks into every field, and not only at children: a plan may hide in a subquery, in a tuple or in a map.
 */
public final class PlanInventory implements Function {
  private static final String COMPUTED = "that is computed";
  private final Set found = new LinkedHashSet();
  private final Set seen = Collections.newSetFromMap(new IdentityHashMap());
  private final ArrayDeque left = new ArrayDeque();

  public Object apply(Object root) {
    return new PlanInventory().list(root);
  }

  private String list(Object root) {
    add(root);
    while (!left.isEmpty()) {
      look(left.pop());
    }
    return String.join("\n", (Iterable) found);
  }

  private void look(Object one) {
    if (one instanceof TreeNode) {
      name(one);
    }
    if (one instanceof scala.collection.Iterable) {
      addAll(((scala.collection.Iterable) one).iterator(), null);
    } else if (one instanceof InheritAnalysisRules) { // what Spark puts in the place of a function that was named
      addAll(((scala.Product) one).productIterator(), ((TreeNode) one).children().head());
    } else if (one instanceof scala.Product) {
      addAll(((scala.Product) one).productIterator(), null);
    }
  }

  private void name(Object node) {
    found.add("class " + node.getClass().getName().replace("org.apache.spark.sql.", ""));
    if (node instanceof UnresolvedFunction) {
      nameFunction((UnresolvedFunction) node);
    } else if (node instanceof UnresolvedTableValuedFunction) {
      found.add("function " + ((UnresolvedTableValuedFunction) node).name().mkString(".").toLowerCase(Locale.ROOT));
    } else if (node instanceof UnresolvedGenerator) {
      found.add("function " + ((UnresolvedGenerator) node).name().unquotedString().toLowerCase(Locale.ROOT));
    } else if (node instanceof UnresolvedRelation) {
      for (Object key : ((UnresolvedRelation) node).options().keySet()) {
        found.add("option " + key + " of a table");
      }
    } else if (node instanceof SubqueryAlias) {
      nameAlias(((SubqueryAlias) node).alias());
    } else if (node instanceof Generate && ((Generate) node).qualifier().isDefined()) {
      nameAlias(String.valueOf(((Generate) node).qualifier().get()));
    } else if (node instanceof DataSourceV2Relation) {
      found.add("table " + ((DataSourceV2Relation) node).table().name());
    } else if (node instanceof Expression) {
      nameOptionsAsAnalysed(((scala.Product) node).productIterator());
    }
  }

  /** Before an offset, a limit and the like Spark's grammar may take the word of a clause for the name of what stands before it. */
  private void nameAlias(String alias) {
    String name = alias.toUpperCase(Locale.ROOT);
    if (name.equals("WHERE") || name.equals("HAVING") || name.equals("QUALIFY")) {
      found.add("clause " + name);
    }
  }

  private void nameFunction(UnresolvedFunction function) {
    found.add("function " + nameOf(function));
    int at = nameOf(function).matches("from_(csv|json)") ? 2 : nameOf(function).matches("(to|schema_of)_(csv|json)") ? 1 : -1;
    if (at >= 0 && at < function.arguments().size()) {
      nameOptions(function.arguments().apply(at));
    }
  }

  private void nameOptions(Object map) {
    if (!(map instanceof UnresolvedFunction) || !nameOf((UnresolvedFunction) map).equals("map")) {
      nameOption(COMPUTED);
      return;
    }
    scala.collection.Iterator namesAndValues = ((UnresolvedFunction) map).arguments().iterator();
    for (boolean isName = true; namesAndValues.hasNext(); isName = !isName) {
      Object one = namesAndValues.next();
      if (isName) {
        nameOption(one instanceof Literal ? ((Literal) one).value() : COMPUTED);
      }
    }
  }

  private void nameOptionsAsAnalysed(scala.collection.Iterator fields) {
    while (fields.hasNext()) {
      Object field = fields.next();
      if (field instanceof scala.collection.Map) {
        for (scala.collection.Iterator names = ((scala.collection.Map) field).keysIterator(); names.hasNext();) {
          nameOption(names.next());
        }
      }
    }
  }

  private static String nameOf(UnresolvedFunction function) {
    return function.nameParts().mkString(".").toLowerCase(Locale.ROOT);
  }

  private void nameOption(Object name) {
    found.add("option " + String.valueOf(name).toLowerCase(Locale.ROOT));
  }

  private void addAll(scala.collection.Iterator parts, Object less) {
    while (parts.hasNext()) {
      Object part = parts.next();
      if (part != less || less == null) {
        add(part);
      }
    }
  }

  private void add(Object one) {
    if (one != null && seen.add(one)) {
      left.push(one);
    }
  }
}
